#!/bin/sh
# Makes this release the one in use: current is a link, replaced in one step. The release in use before becomes
# previous (previous/activate.sh goes back to it); releases older than that are removed.
set -eu
release=$(CDPATH='' cd -- "$(dirname -- "$0")" && pwd -P)
id=${release##*/}

fail() {
    printf 'fastcar: %s\n' "$*" >&2
    exit 1
}

link() {
    ln -s "releases/$1" ".$2.$$"
    mv -T -f ".$2.$$" "$2"
}

# Only what a deploy has made: the folder may hold other things.
is_release() {
    case ${1##*/} in
        *[!0-9a-f]* | '') return 1 ;;
        ????????????) [ -d "$1" ] && [ ! -L "$1" ] ;;
        *) return 1 ;;
    esac
}

cd "$release/../.."
[ -d "releases/$id" ] || fail "$release is not below releases/"
[ -f "$release/env/.complete" ] || fail "$release is not installed; run $release/install.sh"
for name in current previous; do
    if [ -e "$name" ] && [ ! -L "$name" ]; then fail "$PWD/$name is no link; move it away"; fi
done
rm -f .current.* .previous.*  # of an activation that was interrupted

now=$(readlink current) || now=
now=${now##*/}
if [ "$now" != "$id" ]; then
    if [ -n "$now" ] && [ -d "releases/$now" ]; then link "$now" previous; fi
    link "$id" current
fi
before=$(readlink previous) || before=
before=${before##*/}
echo "fastcar:previous=$before"

for folder in releases/* incoming/*; do
    case $folder in
        "releases/$id" | "releases/$before") continue ;;
    esac
    if is_release "$folder"; then
        rm -f -- "$folder/env/.complete"  # first: what is half removed must not pass for installed
        rm -rf -- "$folder"
        echo "fastcar:removed=$folder"
    fi
done
