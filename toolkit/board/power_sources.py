"""Where a board tells its supply power: PYNQ's rails, else Linux hwmon, else IIO.

A workstation has power sensors, too (processor, graphics, battery), which have nothing to do with an overlay: only
sensors of kinds that boards carry are taken, and only where there is a device tree.

Sources: Linux, Documentation/hwmon/sysfs-interface (microwatts, millivolts, milliamperes) and
Documentation/ABI/testing/sysfs-bus-iio (milliwatts after scale and offset); pynq/pmbus.py; the sensors' names on a
KV260 (ina260_u14, the supply of the whole module) and a ZCU102 (ina226_u76 ...) as their owners list them.
"""

from __future__ import annotations

import math
import re
import warnings
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

__all__ = ["PowerRail", "PowerSources", "finite_watts", "is_board", "open_power_sources"]

MONITORS = re.compile(r"ina(2\d\d|3221)")
REGULATORS = re.compile(r"irps5401")  # measure what they give, which a monitor beside them measures, too
MODULE_TOTAL = re.compile(r"ina260")  # on the Kria K26: all of the module
LABELLED_TOTALS = ("12V",)  # of a ZCU104 by PYNQ's own labels: the board's input
INPUT_MILLIVOLTS = 10_000  # regulators on these boards are fed with 12 V, what they give is far lower
UNLABELLED = re.compile(r"(power|in|curr)\d+$")

Rails = Callable[[], Mapping[str, Any]]


@dataclass(frozen=True)
class PowerRail:
    """``watts`` reads it: OSError or ValueError if the sensor does not answer. ``total``: it feeds the others."""

    name: str
    watts: Callable[[], float]
    total: bool = False


@dataclass(frozen=True)
class PowerSources:
    """Rails of one source; ``label`` names it."""

    label: str
    rails: tuple[PowerRail, ...]

    @property
    def counted(self) -> tuple[PowerRail, ...]:
        """The first rail that feeds others, if one is known, otherwise all: nothing is counted twice."""
        return tuple(rail for rail in self.rails if rail.total)[:1] or self.rails

    @property
    def basis(self) -> str:
        return "total" if self.counted[0].total else "sum of the measured rails"


def is_board(root: Path = Path("/")) -> bool:
    """Whether a device tree describes the machine."""
    return (root / "proc/device-tree/model").exists()


def open_power_sources(root: Path = Path("/"), rails: Rails | None = None) -> PowerSources | None:
    """The first source that has a rail which answers; None on a workstation, or a board without one.

    ``root``: of the file system; ``rails``: as ``pynq.pmbus.get_rails``, which is the default.
    """
    if not is_board(root):
        return None
    found = (("PYNQ's rails", _pynq(rails or _get_rails)), ("hwmon", _hwmon(root)), ("IIO", _iio(root)))
    for label, candidates in found:
        answering = tuple(rail for rail in candidates if _answers(rail))
        if answering:
            return PowerSources(label, answering)
    return None


def finite_watts(rail: PowerRail) -> float:
    """ValueError also for "nan" and "inf", which are numbers to Python: a single one spoils every sum of energy."""
    watts = rail.watts()
    if not math.isfinite(watts):
        raise ValueError(f"{rail.name} says {watts}")
    return watts


def _answers(rail: PowerRail) -> bool:
    try:
        finite_watts(rail)
    except Exception:  # whatever a driver raises: it cannot be read
        return False
    return True


def _get_rails() -> Mapping[str, Any]:
    """{} where PYNQ or libsensors is missing."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            from pynq.pmbus import get_rails

            return get_rails()
    except Exception:  # an import or a library that fails is no reason not to generate
        return {}


def _pynq(rails: Rails) -> list[PowerRail]:
    """Only rails that a configuration of libsensors names: the bare names power1, in1 are shared by all chips, and
    PYNQ then overwrites one chip's by another's. A sensor that vanishes repeats its last value here."""
    found = []
    for name, rail in rails().items():
        if UNLABELLED.match(name):
            continue
        if rail.power is not None:
            read = lambda sensor=rail.power: float(sensor.value)
        elif rail.voltage is not None and rail.current is not None:
            read = lambda rail=rail: float(rail.voltage.value) * float(rail.current.value)
        else:
            continue
        found.append(PowerRail(name, read, name in LABELLED_TOTALS))
    return found


def _hwmon(root: Path) -> list[PowerRail]:
    chips = {folder: _text(folder / "name") for folder in (root / "sys/class/hwmon").glob("hwmon*")}
    names = list(chips.values())
    for kind in (MONITORS, REGULATORS):
        rails = []
        for folder in sorted((folder for folder, name in chips.items() if kind.match(name)), key=_natural):
            name = chips[folder]
            total = kind is MONITORS and (MODULE_TOTAL.match(name) or _bus_millivolts(folder) >= INPUT_MILLIVOLTS)
            shown = name if names.count(name) == 1 else f"{name} ({folder.name})"
            channels = _power_channels(folder, shown) or _product_channels(folder, shown)
            rails += [PowerRail(label, read, bool(total) and len(channels) == 1) for label, read in channels]
        if rails:
            return rails
    return []


def _power_channels(folder: Path, name: str) -> list[tuple[str, Callable[[], float]]]:
    """Of powerN_input; a regulator's own input (label pin) is what its outputs come from and is left out."""
    channels = []
    for file in sorted(folder.glob("power*_input"), key=_natural):
        label = _text(file.with_name(file.name.replace("_input", "_label")))
        if label.startswith("pin"):
            continue
        unit = 1e-3 if _in_milliwatts(folder, file) else 1e-6
        channels.append((label and f"{name} {label}", lambda file=file, unit=unit: float(file.read_text()) * unit))
    return _named(channels, name)


def _in_milliwatts(folder: Path, power: Path) -> bool:
    """Older kernels hand IIO's milliwatts through hwmon as they are; voltage times current shows it."""
    amperes = sorted(folder.glob("curr*_input"))
    if len(amperes) != 1:
        return False
    microwatts = _bus_millivolts(folder) * _number(amperes[0])
    return microwatts > 0 and 0 < _number(power) < microwatts / 100


def _product_channels(folder: Path, name: str) -> list[tuple[str, Callable[[], float]]]:
    """Of voltages and currents of the same channel, where a chip gives no power."""
    channels = []
    for current in sorted(folder.glob("curr*_input"), key=_natural):
        number = current.name[len("curr") : -len("_input")]
        voltage = folder / f"in{number}_input"
        if voltage.exists() and not _text(folder / f"curr{number}_label").startswith("iin"):
            read = lambda v=voltage, c=current: float(v.read_text()) * float(c.read_text()) * 1e-6
            label = _text(folder / f"in{number}_label")
            channels.append((label and f"{name} {label}", read))
    return _named(channels, name)


def _iio(root: Path) -> list[PowerRail]:
    rails = []
    for folder in sorted((root / "sys/bus/iio/devices").glob("iio:device*"), key=_natural):
        name = _text(folder / "name")
        if not MONITORS.match(name):
            continue
        files = sorted(folder.glob("in_power*_raw"), key=_natural)
        shown = f"{_text(folder / 'label') or name} ({folder.name})"
        channels = _named([("", lambda file=file: _iio_watts(file)) for file in files], shown)
        rails += [PowerRail(label, read, bool(MODULE_TOTAL.match(name))) for label, read in channels]
    return rails


def _iio_watts(raw: Path) -> float:
    """(raw + offset) * scale, in milliwatts; the scale is the channel's own or that of all of its kind."""
    own = raw.name.removesuffix("_raw")
    offset = _number(raw.with_name(f"{own}_offset"))
    scales = [raw.with_name(f"{name}_scale") for name in (own, "in_power")]
    scale = float(next((file for file in scales if file.exists()), scales[0]).read_text())
    return (float(raw.read_text()) + offset) * scale * 1e-3


def _named(channels: list[tuple[str, Callable[[], float]]], name: str) -> list[tuple[str, Callable[[], float]]]:
    """Channels without a label get the chip's name, numbered where there are several."""
    numbered = len(channels) > 1
    return [
        (label or (f"{name} {number}" if numbered else name), read)
        for number, (label, read) in enumerate(channels, start=1)
    ]


def _bus_millivolts(folder: Path) -> float:
    """The highest voltage of a chip: the other one is that across its shunt."""
    return max((_number(file) for file in folder.glob("in*_input")), default=0.0)


def _text(file: Path) -> str:
    try:
        return file.read_text("utf-8", "replace").strip("\0\n ")
    except OSError:
        return ""


def _number(file: Path) -> float:
    """0 if it cannot be read."""
    try:
        return float(file.read_text())
    except (OSError, ValueError):
        return 0.0


def _natural(path: Path) -> tuple[int, str]:
    digits = re.findall(r"\d+", path.name)
    return (int(digits[0]) if digits else 0, path.name)
