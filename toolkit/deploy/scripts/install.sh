#!/bin/sh
# Makes the release's own Python environment, env: what the board has is used, the wheel and what is missing is added.
# FASTCAR_BASE_PYTHON names a Python to take instead of the board's. Does nothing if it was done before.
# Exit codes: 3 no Python or environment; 4 packages out of reach; 5 packages do not install; 6 fastcar does not start.
set -eu
unset PYTHONHOME PYTHONPATH
export LC_ALL=C PIP_DISABLE_PIP_VERSION_CHECK=1 PIP_NO_INPUT=1

release=$(CDPATH='' cd -- "$(dirname -- "$0")" && pwd -P)
env=$release/env
log=$release/install.log
. "$release/python.sh"

fail() {
    code=$1
    shift
    printf 'fastcar: %s\n' "$*" >&2
    exit "$code"
}

# -I: a folder "fastcar" where this is called from is not the package.
starts() { "$env/bin/python" -I -m fastcar --version; }

pip() { "$env/bin/python" -I -m pip "$@" >>"$log" 2>&1; }

last_words() { { grep '^ERROR' "$log" || grep -v '^[[:space:]]*$' "$log"; } | tail -n 1; }

# The directories are added as the other Python itself adds them, with their .pth files.
show_packages_of_the_base() {
    "$python" - "$("$env/bin/python" -c 'import sysconfig; print(sysconfig.get_path("purelib"))')" <<'EOF'
import sys
with open(sys.argv[1] + "/fastcar-base.pth", "w", encoding="utf-8") as file:
    for path in sys.path:
        if path.rstrip("/").endswith(("site-packages", "dist-packages")):
            file.write(f"import site; site.addsitedir({path!r})\n")
EOF
}

make_environment() {
    set --
    if [ -n "$shared" ] && "$python" -m pip --version >/dev/null 2>&1; then set -- --without-pip; fi
    "$python" -m venv "$@" "$env" >>"$log" 2>&1 ||
        fail 3 "$python cannot make an environment: $(tail -n 1 "$log")"
    if [ -n "$shared" ]; then show_packages_of_the_base >>"$log" 2>&1 || fail 3 "$(tail -n 1 "$log")"; fi
}

install_packages() {
    cd "$release/wheel"
    set -- *.whl
    wheel=./$1
    # First without what it needs, and by force: the base may have this version, too.
    pip install --no-index --no-deps --force-reinstall "$wheel" || fail 5 "$(last_words)"
    set -- --retries 2 --timeout 15 --progress-bar off
    if [ -d ../wheelhouse ]; then set -- --no-index --find-links ../wheelhouse; fi
    if ! pip install "$@" "$wheel[board]"; then
        unreachable='NewConnectionError|ConnectTimeout|name resolution|Network is unreachable|No matching distribution'
        if grep -qE "$unreachable" "$log"; then fail 4 "$(last_words)"; fi
        fail 5 "$(last_words)"
    fi
}

for file in "$release/.install.lock" "$log"; do
    if [ -L "$file" ]; then rm -f -- "$file"; fi  # never written through
done
# Another installation may have outlived the connection it was started over.
exec 9>"$release/.install.lock"
if command -v flock >/dev/null; then
    flock -w 900 9 || fail 5 "another installation of this release has been at work for 15 minutes"
fi

if [ -f "$env/.complete" ] && version=$(starts 2>/dev/null); then
    echo "$version, installed already"
    exit 0
fi
rm -rf -- "$env"
: >"$log"
find_python
case $(python_version) in
    3.[1-9][0-9]) ;;
    *) fail 3 "$python is not Python 3.10 or newer" ;;
esac
make_environment
install_packages
version=$(starts 2>>"$log") || fail 6 "$(tail -n 1 "$log")"
: >"$env/.complete"
echo "$version"
