"""Physically contiguous memory (CMA) of a Linux system, and how to have more of it."""

from __future__ import annotations

from pathlib import Path

__all__ = ["HOW", "LARGEST_BYTES", "advice", "boot_argument", "contiguous_memory", "with_slack"]

MIB = 1 << 20
STEP = 64 * MIB
SLACK = 1.05  # other drivers take some, and what is left is in pieces

LARGEST_BYTES = 1900 * MIB
"""The most that was seen to be reserved on a Zynq UltraScale+ (a ZCU106: 1900 MB worked, 2048 MB did not): it has to
lie below 4 GB, where such a device has 2 GB of DDR (UG1085, address map), beside the kernel."""

HOW = (
    "with Ubuntu for Kria in LINUX_KERNEL_CMDLINE of /etc/default/flash-kernel, followed by `sudo flash-kernel`; with "
    "a PYNQ or PetaLinux image in its bootargs; then reboot and look at `grep Cma /proc/meminfo`"
)
# The first way was read in notes of several owners of Kria boards, who run Ubuntu 22.04; the second follows from the
# kernel's documentation of cma=, which takes precedence over the node linux,cma of a device tree. Neither was tried.


def contiguous_memory(path: str | Path = "/proc/meminfo") -> tuple[int, int] | None:
    """(free, total) bytes, from CmaFree and CmaTotal; None if the kernel does not tell."""
    try:
        lines = Path(path).read_text("utf-8", "replace").splitlines()
    except OSError:
        return None
    fields = dict(line.split(":", 1) for line in lines if ":" in line)
    try:
        free, total = (int(fields[name].split()[0]) << 10 for name in ("CmaFree", "CmaTotal"))
    except (KeyError, ValueError, IndexError):
        return None
    return free, total


def with_slack(needed_bytes: int) -> int:
    """Bytes to have in all so that ``needed_bytes`` of them are free, in buffers of one piece."""
    return int(needed_bytes * SLACK)


def boot_argument(needed_bytes: int) -> str:
    """``cma=NNNM`` for this many bytes and 5 % more, in steps of 64 MB (2^20 bytes each, as the kernel counts)."""
    size = -(-with_slack(needed_bytes) // STEP) * STEP
    return f"cma={min(size, max(LARGEST_BYTES, needed_bytes)) // MIB}M"


def advice(needed_bytes: int, total: int) -> str:
    """What to do where ``needed_bytes`` are not free; ``total``: of all contiguous memory, 0 if that is not known."""
    if needed_bytes > LARGEST_BYTES:
        largest = f"{LARGEST_BYTES // MIB} MB"
        return f"More than about {largest} cannot be reserved on these boards: use a smaller model, or fewer prompts."
    if total >= with_slack(needed_bytes):
        return (
            "There is enough, but in use: end the programs and notebooks that hold buffers, or reboot; otherwise boot "
            f"with {boot_argument(total + needed_bytes)}: {HOW}."
        )
    return f"Boot with {boot_argument(needed_bytes)} or more: {HOW}."
