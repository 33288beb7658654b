"""Videos of a sweep under the names that VBench looks for, to be evaluated elsewhere.

VBench (Huang et al., CVPR 2024) takes a list of prompts as JSON, objects with ``prompt_en`` and ``dimension``, and
looks in a folder for ``<prompt_en>-<index>.mp4``, index 0 to 4: here the seeds. It takes the ending of the names from
whatever file the folder lists first, so nothing else is put there.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from ..bundle.bundle import Bundle
from ..errors import UsageError
from ..output import replacing
from ..video.decode import FrameDecoder
from ..video.mp4 import write_mp4
from .store import Store

__all__ = ["read_vbench_prompts", "video_bytes", "video_name", "write_vbench_videos"]

PROMPTS, RUNS = ".prompts.json", ".runs.json"
LONGEST_NAME = 255  # bytes, of the usual file systems
BYTES_PER_FRAME = 64 << 10  # of a compressed picture of 256 x 256, and more


def read_vbench_prompts(path: Path) -> tuple[str, ...]:
    """The prompts, each once, however many dimensions list it. UsageError if the file is not such a list."""
    expected, fix = "a JSON list of objects with prompt_en and dimension, as VBench_full_info.json", "Correct the file."
    try:
        entries = json.loads(path.read_text("utf-8"))
    except (OSError, ValueError, RecursionError) as error:
        reason = getattr(error, "strerror", None) or f"not JSON: {error}"
        raise UsageError("--vbench", f"{path}: {reason}", expected, fix) from error
    if not isinstance(entries, list) or not entries:
        raise UsageError("--vbench", f"{path} holds no list, or an empty one", expected, fix)
    for number, entry in enumerate(entries):
        if not isinstance(entry, dict) or not isinstance(entry.get("prompt_en"), str) or not entry["prompt_en"].strip():
            raise UsageError("--vbench", f"{path}: entry {number} has no prompt_en", expected, fix)
        if not isinstance(entry.get("dimension"), list) or not all(isinstance(d, str) for d in entry["dimension"]):
            raise UsageError("--vbench", f"{path}: entry {number} has no list of dimension", expected, fix)
    return tuple(dict.fromkeys(entry["prompt_en"] for entry in entries))


def video_name(prompt: str, index: int) -> str:
    """``<prompt>-<index>.mp4``; of a prompt that no file can be named by (a slash, more than 255 bytes), what is left
    of it and a part of its hash, so that no two prompts share a name."""
    ending = f"-{index}.mp4"
    name = prompt + ending
    if not re.search(r"[/\0]", prompt) and len(name.encode()) <= LONGEST_NAME:
        return name
    digest = "-" + hashlib.sha256(prompt.encode()).hexdigest()[:12]
    room = LONGEST_NAME - len((digest + ending).encode())
    kept = re.sub(r"[/\0]", "_", prompt).encode()[:room].decode(errors="ignore")
    return kept + digest + ending


def video_bytes(frames: int, videos: int) -> int:
    """About what they need of the disk."""
    return frames * videos * BYTES_PER_FRAME


def write_vbench_videos(
    out: Path,
    bundles: dict[str, Bundle],
    rows: Sequence[dict[str, Any]],
    advance: Callable[[str, int, int], None] = lambda stage, done, total: None,
) -> list[Path]:
    """``out``/videos/BUNDLE/NUMBER-SETTING/: a folder for `vbench evaluate --videos_path`; the folders.

    Beside each, NUMBER-SETTING.prompts.json, file -> prompt, which `--mode custom_input --prompt_file` reads: the only
    way for prompts that are not in the file's name.

    From the codes in the store, without generating again; a video that is there, of the same run, is left.
    """
    store, folders = Store(out), list[Path]()
    groups: dict[tuple[str, str], list[dict[str, Any]]] = {}
    for row in rows:
        groups.setdefault((row["bundle"], row["setting"]), []).append(row)
    numbers = {setting: number for number, setting in enumerate(dict.fromkeys(setting for _, setting in groups))}
    done, decoders = 0, dict[str, FrameDecoder]()
    for (name, setting), group in groups.items():
        folder = out / "videos" / _word(name) / f"{numbers[setting]:02d}-{_word(setting)}"
        made = _made(folder)
        for row in group:
            file = video_name(row["prompt"], int(row["seed"]))
            if made.get(file) != row["key"] or not (folder / file).is_file():
                decode = decoders.setdefault(name, FrameDecoder(bundles[name]))
                manifest, codes = bundles[name].manifest, store.codes(row["key"])
                pictures = decode(codes.reshape(-1, *manifest.frame_layout.grid, *codes.shape[2:]))
                write_mp4(folder / file, pictures, manifest.frame_rate)
            done += 1
            advance("videos", done, len(rows))
        prompts = {video_name(row["prompt"], int(row["seed"])): row["prompt"] for row in group}
        keys = {video_name(row["prompt"], int(row["seed"])): row["key"] for row in group}
        for kind, content in ((RUNS, keys), (PROMPTS, prompts)):
            with replacing(folder.with_name(folder.name + kind)) as partial:
                partial.write_text(json.dumps(content, indent=1, ensure_ascii=False) + "\n", "utf-8")
        folders.append(folder)
    return folders


def _made(folder: Path) -> dict[str, str]:
    """File -> key of the run it shows."""
    try:
        found = json.loads(folder.with_name(folder.name + RUNS).read_text("utf-8"))
    except (OSError, ValueError):
        return {}
    return found if isinstance(found, dict) else {}


def _word(text: str) -> str:
    return re.sub(r"[^\w.+-]+", "_", text).strip("._")[-100:] or "bundle"
