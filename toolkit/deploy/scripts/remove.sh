# Removes files of a release that arrives. Arguments: the folder, the release. stdin: their names.
cd -- "$1/incoming/$2" || exit 73
while IFS= read -r name; do rm -f -- "$name" || exit 73; done
