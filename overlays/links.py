"""Link files of PYNQ packages: they say where the bitstream of each board can be downloaded, and its MD5 sum.

``fastcar.bit.link`` in a folder stands for a ``fastcar.bit`` in it. PYNQ reads such files when a package is built
(``download_overlays``) and when notebooks are copied (``pynq get-notebooks``); a file with another sum it deletes.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Mapping
from pathlib import Path
from urllib.parse import quote, urlsplit

from ..toolkit.errors import OverlayError, UsageError
from ..toolkit.output import replacing
from .bitfile import read_bitfile
from .design import build_id_of_name
from .hwh import read_handoff

__all__ = ["md5sum", "write_link", "write_release_links"]

SUM = re.compile(r"[0-9a-f]{32}")
SCHEMES = ("https", "http", "file")
PIECE = 1 << 20  # bytes read at a time


def md5sum(file: Path) -> str:
    """In 32 lower-case digits, as PYNQ compares it. It guards against damage, not against malice."""
    digest = hashlib.md5(usedforsecurity=False)
    try:
        with file.open("rb") as stream:
            while piece := stream.read(PIECE):
                digest.update(piece)
    except OSError as error:
        found = (error.strerror or str(error)).lower()
        raise OverlayError(file, found, "a file that can be read", "Correct the path.") from error
    return digest.hexdigest()


def write_link(path: Path, downloads: Mapping[str, tuple[str, str]]) -> None:
    """``path``: the name of the file it stands for with ``.link`` behind it. ``downloads``: (URL, MD5 sum) by device.

    Devices are named as PYNQ names them, such as KV260. UsageError for a name, an address or a sum that PYNQ could not
    use, OutputError if the file cannot be written.
    """
    if path.suffix != ".link" or not Path(path.stem).suffix:
        fix = "Append .link to the name of the file it stands for."
        raise UsageError(path, "not the name of a link file", "a name such as fastcar.bit.link", fix)
    if not downloads:
        raise UsageError(path, "no device", "one or more", "Name a device and its bitstream.")
    for device, (url, total) in downloads.items():
        if not device or "/" in device:
            raise UsageError(path, f"device {device!r}", "a name as PYNQ gives it, such as KV260", "Correct it.")
        if not _is_address(url):
            expected = "one of https, http or file, with a host or path and no space"
            raise UsageError(path, f"address {url!r}", expected, "Give the whole address.")
        if not SUM.fullmatch(total):
            raise UsageError(path, f"MD5 sum {total!r}", "32 digits of 0-9 and a-f", "Take that of md5sum FILE.")
    content = {device: {"url": url, "md5sum": total} for device, (url, total) in downloads.items()}
    with replacing(path) as partial:
        partial.write_text(json.dumps(content, indent=2) + "\n", "utf-8")


def _is_address(url: str) -> bool:
    try:
        parts = urlsplit(url)
        port = parts.port  # ValueError only when asked for
    except (ValueError, TypeError, AttributeError):
        return False
    plain = isinstance(url, str) and url.isascii() and url.isprintable() and " " not in url
    place = parts.path if parts.scheme == "file" else parts.hostname and port != 0
    return plain and parts.scheme in SCHEMES and bool(place)


def write_release_links(folder: Path, bitstreams: Mapping[str, Path], url: str, name: str = "fastcar") -> list[Path]:
    """Links for ``name``.bit and ``name``.hwh in ``folder``, from the local files of a release: a .bit by device.

    ``folder``: that of a notebook. PYNQ puts both files beside the copy of it that it delivers; elsewhere it would put
    them into two folders, and not find the .hwh. ``url``: where the files lie, under their own names. OverlayError if
    a .bit or the .hwh beside it is missing or damaged, or the two are of different builds; UsageError if two devices'
    files share a name but not their content, or as for ``write_link``. Returns what was written.
    """
    files = {device: (bit, bit.with_suffix(".hwh")) for device, bit in bitstreams.items()}
    for bit, handoff in files.values():
        _check_pair(bit, handoff)
    written = []
    for index, suffix in enumerate((".bit", ".hwh")):
        sums: dict[str, str] = {}
        downloads = {}
        for device, pair in files.items():
            file = pair[index]
            total = md5sum(file)
            if sums.setdefault(file.name, total) != total:
                found = f"the name of two files of different content ({device} has the second)"
                raise UsageError(file.name, found, "a name of its own for each", "Rename one, .bit and .hwh alike.")
            downloads[device] = (f"{url.rstrip('/')}/{quote(file.name)}", total)
        path = folder / f"{name}{suffix}.link"
        write_link(path, downloads)
        written.append(path)
    return written


def _check_pair(bit: Path, handoff: Path) -> None:
    """PYNQ would load a bitstream under the description of another."""
    designs = read_bitfile(bit).design, read_handoff(handoff).design
    builds = [build_id_of_name(design) for design in designs]
    if builds[0] is None or builds[0] != builds[1]:
        found = f"of design {designs[1]!r}, the bitstream of {designs[0]!r}"
        raise OverlayError(handoff, found, "two files of one build of a decode engine", "Take both of one build.")
