"""Boards as data: one TOML file each, in which every table names the source of its values."""

from .load import board_names, load_board
from .model import BEAT_BYTES, Board, Device, Linux, Memory, Overlay, Ports, Resources

__all__ = [
    "BEAT_BYTES",
    "Board",
    "Device",
    "Linux",
    "Memory",
    "Overlay",
    "Ports",
    "Resources",
    "board_names",
    "load_board",
]
