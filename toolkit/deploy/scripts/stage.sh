# Links files of a release that lies there into the one that arrives. Arguments: the folder, the release to take
# from, the release that arrives. stdin: pairs of lines, the name there and the name here.
cd -- "$1" || exit 73
mkdir -p "incoming/$3" || exit 73
while IFS= read -r there && IFS= read -r here; do
    if [ -e "incoming/$3/$here" ] || [ ! -f "releases/$2/$there" ]; then continue; fi
    mkdir -p -- "$(dirname -- "incoming/$3/$here")" && ln -- "releases/$2/$there" "incoming/$3/$here" || exit 73
done
