"""Board files that cannot be used: one sentence naming the file, the key, what was expected and what to do."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

import fastcar.boards
from fastcar.boards import board_names, load_board
from fastcar.toolkit.errors import UsageError

KV260 = (Path(fastcar.boards.__file__).parent / "kv260.toml").read_text("utf-8")


@pytest.fixture
def board_file(tmp_path: Path):
    """KV260's file with one thing replaced."""

    def write(old: str = "", new: str = "", count: int = 1) -> Path:
        assert old in KV260
        path = tmp_path / "mine.toml"
        path.write_text(KV260.replace(old, new, count), "utf-8")
        return path

    return write


def refused(path: Path | str) -> UsageError:
    with pytest.raises(UsageError) as caught:
        load_board(path)
    assert "\n" not in str(caught.value)
    return caught.value


def test_a_file_of_ones_own(board_file) -> None:
    path = board_file("lut = 117_120", "lut = 1_000")
    assert load_board(path).resources.lut == 1000
    assert load_board(str(path)) == load_board(path)
    assert load_board(path).name == "mine"


@pytest.mark.parametrize("name", ["zcu999", "", "../boards/kv260", "kv260.tom"])
def test_unknown_board(name: str) -> None:
    error = refused(name)
    assert error.found == f"{name!r} is not known"
    assert all(known in error.expected for known in board_names())
    assert ".toml" in error.fix


def test_missing_file(tmp_path: Path) -> None:
    error = refused(tmp_path / "none.toml")
    assert (error.subject, error.found) == (str(tmp_path / "none.toml"), "cannot be read (No such file or directory)")
    assert "kv260" in error.fix


def test_a_folder(tmp_path: Path) -> None:
    assert refused(tmp_path).found.startswith("cannot be read")


@pytest.mark.parametrize("content", [b"[device\n", b"\xff\xfe", b"lut = 1\nlut = 2\n", b"a = " + b"[" * 5000])
def test_not_toml(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "bad.toml"
    path.write_bytes(content)
    error = refused(path)
    assert error.subject == str(path)
    assert error.found.startswith("is not TOML")


def lines(text: str, start: str) -> str:
    """The first line that starts so, with its end."""
    return next(line for line in text.splitlines(keepends=True) if line.startswith(start))


@pytest.mark.parametrize("table", ["device", "resources", "ddr", "ports", "overlay", "linux"])
@pytest.mark.parametrize("source", ["", 'source = ""\n', 'source = "  "\n', "source = 987\n"])
def test_every_table_needs_a_source(board_file, table: str, source: str) -> None:
    old = f"[{table}]\n" + lines(KV260.partition(f"[{table}]\n")[2], "source")
    error = refused(board_file(old, f"[{table}]\n{source}"))
    assert error.found.startswith(f"{table}.source is ")
    assert "document number or an arXiv id" in error.expected
    assert error.fix == f'Add {table}.source = "...".'


def test_sustained_fraction_needs_its_own_source(board_file) -> None:
    error = refused(board_file(lines(KV260, "sustained_fraction_source")))
    assert error.found == "ddr.sustained_fraction_source is missing"


@pytest.mark.parametrize(
    ("old", "new", "found", "expected"),
    [
        ("lut = 117_120", "lut = -1", "resources.lut is -1", "greater than 0"),
        ("lut = 117_120", 'lut = "117120"', "resources.lut is '117120'", "a valid integer"),
        ("lut = 117_120", "lut = true", "resources.lut is True", "a valid integer"),
        ("lut = 117_120", "lut = 1.5", "resources.lut is 1.5", "a valid integer"),
        ("uram = 64", "uram = -64", "resources.uram is -64", "greater than or equal to 0"),
        ("dsp = 1_248\n", "", "resources.dsp is missing", "kv260.toml"),
        ("dsp = 1_248", "dsp48 = 1_248", "resources.dsp is missing", "kv260.toml"),
        ("uram = 64", "uram = 64\nbram18 = 288", "resources.bram18 is not known", "kv260.toml"),
        ("bytes = 4_294_967_296", "bytes = 0", "ddr.bytes is 0", "greater than 0"),
        ("peak_gb_s = 19.2", "peak_gb_s = inf", "ddr.peak_gb_s is inf", "a finite number"),
        ("peak_gb_s = 19.2", "peak_gb_s = true", "ddr.peak_gb_s is True", "a valid number"),
        ("peak_gb_s = 19.2", "peak_gb_s = 17.1", "ddr: peak_gb_s 17.1 is not bus_bits / 8 * mt_s, 19.20 GB/s", "agree"),
        (
            "sustained_fraction = 0.85",
            "sustained_fraction = 85",
            "ddr.sustained_fraction is 85",
            "less than or equal to 1",
        ),
        (
            "controller_ports = [3,",
            "controller_ports = [4,",
            "ports: controller_ports lists one of them twice",
            "agree",
        ),
        ("controller_ports = [3,", "controller_ports = [", "ports: 4 names but 3 controller_ports", "agree"),
        ('"S_AXI_HP0_FPD"', '"S_AXI_HP1_FPD"', "ports: names lists one of them twice", "agree"),
        ('"S_AXI_HP0_FPD"', "0", "ports.names.0 is 0", "a valid string"),
        ("[3, 4, 5, 1]", "[3, 4, 5, -1]", "ports.controller_ports.3 is -1", "greater than or equal to 0"),
        ("[3, 4, 5, 1]", "[3, 4, 5, '1']", "ports.controller_ports.3 is '1'", "a valid integer"),
        (
            "clock_mhz = 300",
            "clock_mhz = 1979-05-27",
            "overlay.clock_mhz is datetime.date(1979, 5, 27)",
            "a valid number",
        ),
        ("[overlay]", "[overlays]", "overlay is missing", "kv260.toml"),
        ("[device]", "ports = 3\n[device]", None, None),
        ("[device]", "colour = 'red'\n[device]", "colour is not known", "kv260.toml"),
        ("[linux]", "[pl_ddr]", "pl_ddr.type is missing", "kv260.toml"),
    ],
)
def test_what_is_wrong_is_named(board_file, old: str, new: str, found: str | None, expected: str | None) -> None:
    path = board_file(old, new)
    error = refused(path)
    assert error.subject == str(path)
    if found is None:  # the same key twice
        assert error.found.startswith("is not TOML")
        return
    assert error.found == found
    assert expected in error.expected
    assert error.fix.endswith(".")


def test_a_value_where_a_table_belongs(tmp_path: Path) -> None:
    path = tmp_path / "flat.toml"
    path.write_text("device = 3\n")
    error = refused(path)
    assert (error.found, error.expected) == ("device is 3", "a table")


@pytest.mark.parametrize("key", ["bus_bits", "mt_s", "bytes", "lut", "peak_gb_s", "clock_mhz", "max_burst_beats"])
def test_numbers_beyond_all_bounds(tmp_path: Path, key: str) -> None:
    """TOML has 64 bits for an integer; Python reads longer ones."""
    path = tmp_path / "big.toml"
    text = (Path(fastcar.boards.__file__).parent / "kv260.toml").read_text("utf-8")
    text, count = re.subn(rf"(?m)^{key} = .*$", f"{key} = 1{'0' * 400}", text, count=1)
    assert count == 1
    path.write_text(text)
    assert key in refused(path).found


@pytest.mark.parametrize(
    ("old", "new"),
    [("width_bits = 128", "width_bits = 68719476736"), ("max_burst_beats = 16", "max_burst_beats = 512")],
)
def test_ports_that_no_bus_has(board_file, old: str, new: str) -> None:
    """The cycle model counts a port's beats in 32 bits."""
    error = refused(board_file(old, new))
    assert old.split()[0] in error.found + error.expected


@pytest.mark.parametrize("clock", ["0.5", "1001.0"])
def test_a_clock_that_no_engine_takes(board_file, clock: str) -> None:
    with pytest.raises(UsageError, match=f"overlay.clock_mhz is {clock}"):
        load_board(board_file("clock_mhz = 300", f"clock_mhz = {clock}"))
