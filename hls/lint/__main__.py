"""``python -m fastcar.hls.lint``: findings on standard output; exit status 1 if there are any, 2 on a wrong path."""

from __future__ import annotations

import argparse
import os
import sys
from pathlib import Path

from ...toolkit.errors import UsageError
from .check import kernels, lint_files


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m fastcar.hls.lint", description=__doc__)
    parser.add_argument("paths", nargs="*", type=Path, help="files and folders (default: the project's kernels)")
    paths = parser.parse_args(arguments).paths or [Path(os.path.relpath(path)) for path in kernels()]
    try:
        findings = lint_files(paths)
    except UsageError as error:
        print(error, file=sys.stderr)
        return 2
    for finding in findings:
        print(finding)
    print(f"{len(findings)} findings" if len(findings) != 1 else "1 finding", file=sys.stderr)
    return 1 if findings else 0


if __name__ == "__main__":
    sys.exit(main())
