# How much room there is and what lies there already. Arguments: the folder, the id of the release.
export LC_ALL=C
say() { printf 'fastcar:%s=%s\n' "$1" "$2"; }

cd -- "$1" || exit 73
mkdir -p incoming releases || exit 73
df -Pk . | { read -r _; read -r _ _ _ free _; say free_kib "$free"; }
if [ -e current ] && [ ! -L current ]; then say obstacle current; fi
# What is sent replaces what lies in its folder: never through a link into another one.
if [ -L "incoming/$2" ] || [ ! -d "incoming/$2" ]; then rm -f -- "incoming/$2" || exit 73; fi
if [ -L "releases/$2" ] || { [ -e "releases/$2" ] && [ ! -d "releases/$2" ]; }; then say foreign "releases/$2"; fi
[ ! -d "releases/$2" ] || say present yes
[ ! -f "releases/$2/env/.complete" ] || say installed yes

# Of what is installed, or at least was sent: its files need not be sent again.
base=$(readlink current) || base=
base=${base##*/}
if [ -z "$base" ] || [ ! -f "releases/$base/SHA256SUMS" ]; then base=$(ls -1t releases | head -n 1); fi
if [ -n "$base" ] && [ -f "releases/$base/SHA256SUMS" ]; then
    say base "$base"
    sed 's/^/fastcar:sum=/' "releases/$base/SHA256SUMS"
fi
if [ -d "incoming/$2" ]; then
    cd "incoming/$2" || exit 73
    find . -type f -exec stat -c 'fastcar:staged=%s %n' {} +
fi
exit 0
