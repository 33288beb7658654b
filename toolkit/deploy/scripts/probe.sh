# What the board has, as fastcar:name=value lines. Argument: the folder, absolute or below the home folder.
# Preceded by python.sh. Changes nothing.
export LC_ALL=C

say() { printf 'fastcar:%s=%s\n' "$1" "$2"; }

case $1 in
    /*) folder=$1 ;;
    *) folder=$HOME/$1 ;;
esac
say folder "$folder"

above=$folder
while [ ! -e "$above" ]; do above=$(dirname -- "$above"); done
say above "$above"
[ -d "$above" ] && [ -w "$above" ] && say writable yes

for tool in rsync flock sha256sum timeout; do
    command -v "$tool" >/dev/null && say tool "$tool"
done

find_python
say python "$python"
say version "$(python_version)"
# Without ensurepip no environment can be made, unless pip is there to be used from outside.
if "$python" -c 'import venv, ensurepip' 2>/dev/null; then say venv yes
elif [ -n "$shared" ] && "$python" -c 'import venv, pip' 2>/dev/null; then say venv yes
fi
say machine "$(uname -m)"
