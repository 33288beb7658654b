# Holds the lock of the folder $1 for $2 while signs of life arrive on stdin. The system frees it when this ends,
# however it ends: a deploy that was killed, or a cable that was pulled, blocks nobody for longer than a minute.
mkdir -p -- "$1" || exit 73
if [ -L "$1/.deploy.lock" ]; then
    echo "$1/.deploy.lock is a link, which is not written through; remove it" >&2
    exit 73
fi
: >> "$1/.deploy.lock" || exit 73
flock -n "$1/.deploy.lock" sh -c '
    printf "%s\n" "$2" > "$1/.deploy.lock"
    echo "fastcar:locked=yes"
    while [ -n "$(timeout 60 dd bs=64 count=1 2>/dev/null)" ]; do :; done
    exit 0
' sh "$1" "$2" && exit 0
printf 'fastcar:holder=%s\n' "$(head -n 1 "$1/.deploy.lock")"
exit 75
