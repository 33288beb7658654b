"""``python -m fastcar``: the command line."""

from .toolkit.cli.app import main

if __name__ == "__main__":
    main()
