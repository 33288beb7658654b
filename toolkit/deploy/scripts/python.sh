# Which Python the environment is made of; read by other scripts.

# Sets python, and shared=yes if its packages are to be used: PYNQ has an environment of its own on its boards.
find_python() {
    shared=yes
    if [ -n "${FASTCAR_BASE_PYTHON:-}" ]; then
        python=$FASTCAR_BASE_PYTHON
    elif [ -x /usr/local/share/pynq-venv/bin/python3 ]; then
        python=/usr/local/share/pynq-venv/bin/python3
    else
        python=$(command -v python3) || python=python3
        shared=
    fi
}

# Prints "3.10"; fails if there is no such Python.
python_version() {
    "$python" -c 'import sys; print("%d.%d" % sys.version_info[:2])' 2>/dev/null
}
