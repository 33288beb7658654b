#!/bin/sh
# Generates a clip on the board: generate.sh "left turn" [options of fastcar generate]
# The video is written to ./clip, or where --out says. FASTCAR_DEVICE=emulated runs without the programmable logic.
set -eu

fail() {
    printf 'fastcar: %s\n' "$*" >&2
    exit 2
}

# What the board's profile sets (BOARD, XILINX_XRT) is missing in a plain sudo. The files are written for bash, and
# one of them prints and loads a device tree; none of it may end this script.
profile=${FASTCAR_PROFILE:-/etc/profile.d/pynq_venv.sh}
if [ -z "${FASTCAR_PROFILE_READ:-}" ] && [ -r "$profile" ] && command -v bash >/dev/null; then
    export FASTCAR_PROFILE_READ=yes
    # shellcheck disable=SC2016
    exec bash -c '
        for file in "$1" "${1%/*}/xrt_setup.sh" "${1%/*}/boardname.sh"; do
            if [ -r "$file" ]; then . "$file" >&2; fi
        done
        shift
        exec sh "$@"
    ' bash "$profile" "$0" "$@"
fi

case ${1:--} in
    -*)
        echo 'usage: generate.sh "left turn" [options of fastcar generate, such as --out clip --seed 1]' >&2
        exit 2
        ;;
esac
release=$(CDPATH='' cd -- "$(dirname -- "$0")" && pwd -P)
[ -f "$release/env/.complete" ] || fail "$release is not installed; run $release/install.sh"
device=${FASTCAR_DEVICE:-}
if [ -z "$device" ] && [ "$(id -u)" != 0 ]; then
    fail "only root may map the programmable logic; run: sudo $0 \"$1\" (or set FASTCAR_DEVICE=emulated)"
fi

prompt=$1
shift
out=--out=clip
for word; do
    case $word in
        --out | --out=*) out= ;;
    esac
done
bit=
for file in "$release"/overlay/*.bit; do
    if [ -f "$file" ]; then bit=$file; fi
done
if [ -z "$bit" ] && [ "${device%%:*}" != emulated ]; then
    fail "this release has no overlay; deploy again with --overlay FILE.bit"
fi

# The caller's own options come last, where they count.
set -- "--prompt=$prompt" ${device:+"--device=$device"} ${bit:+"--overlay=$bit"} ${out:+"$out"} "$@"
# -I: a folder "fastcar" where this is called from is not the package.
exec "$release/env/bin/python" -I -m fastcar generate "$release/bundle" --backend pynq "$@"
