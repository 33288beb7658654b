# Moves the release that has arrived to its place. Arguments: the folder, the release. stdin: the names of files that
# are damaged in a release which is there already; each of them is replaced by itself.
cd -- "$1" || exit 73
sync
if [ -d "releases/$2" ]; then
    while IFS= read -r name; do
        mkdir -p -- "$(dirname -- "releases/$2/$name")" && mv -f -- "incoming/$2/$name" "releases/$2/$name" || exit 73
    done
    rm -rf -- "incoming/$2"
else
    mv -T -- "incoming/$2" "releases/$2" || exit 73
fi
sync
