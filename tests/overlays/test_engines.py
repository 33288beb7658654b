"""Engine files: those that come with the project fit their boards; those that cannot be used are refused."""

from __future__ import annotations

from pathlib import Path

import pytest

import fastcar.boards
import fastcar.overlays
from fastcar.boards import load_board
from fastcar.hls.resources import RESOURCES, budget, estimate, largest_groups, total
from fastcar.overlays import engine_names, load_engine
from fastcar.toolkit.errors import UsageError

KV260 = (Path(fastcar.overlays.__file__).parent / "engines/kv260.toml").read_text("utf-8")


@pytest.fixture
def engine_file(tmp_path: Path):
    """KV260's file with one thing replaced."""

    def write(old: str = "", new: str = "") -> Path:
        assert old in KV260
        path = tmp_path / "mine.toml"
        path.write_text(KV260.replace(old, new, 1), "utf-8")
        return path

    return write


def refused(path: Path | str) -> UsageError:
    with pytest.raises(UsageError) as caught:
        load_engine(path)
    assert "\n" not in str(caught.value)
    return caught.value


def test_names() -> None:
    assert {"kv260", "kr260", "zcu102", "zcu104", "zcu106", "kv260-batch"} <= set(engine_names())
    assert list(engine_names()) == sorted(engine_names())


@pytest.mark.parametrize("name", engine_names())
def test_each_engine_fits_its_board(name: str) -> None:
    engine = load_engine(name)
    board = load_board(engine.board)
    assert engine.config.name == name
    assert name.split("-")[0] == engine.board
    assert engine.config.clock_mhz == board.overlay.clock_mhz
    assert engine.note.endswith(".")
    used = total(estimate(engine.config, ultraram=board.resources.uram > 0))
    assert all(getattr(used, key) <= getattr(budget(board), key) for key in RESOURCES)
    assert engine.config.groups <= largest_groups(engine.config, board)


def test_builds_differ_where_engines_do() -> None:
    """Two boards with the same engine take the same program."""
    configs = [load_engine(name).config for name in engine_names()]
    for one in configs:
        for other in configs:
            same = one.model_dump(exclude={"name"}) == other.model_dump(exclude={"name"})
            assert (one.build_id == other.build_id) == same, (one.name, other.name)


def test_any_case() -> None:
    assert load_engine("KV260") == load_engine("kv260")


def test_a_file_of_ones_own(engine_file) -> None:
    path = engine_file("groups = 2", "groups = 1")
    engine = load_engine(path)
    assert (engine.config.name, engine.config.groups, engine.board) == ("mine", 1, "kv260")
    assert load_engine(str(path)) == engine
    assert load_engine(engine_file("groups = 2", 'name = "other"\ngroups = 2')).config.name == "other"


def test_a_board_of_ones_own(engine_file) -> None:
    path = engine_file('"kv260"', '"small.toml"')
    board = (Path(fastcar.boards.__file__).parent / "kv260.toml").read_text("utf-8")
    (path.parent / "small.toml").write_text(board, "utf-8")
    assert load_engine(path).board == str((path.parent / "small.toml").resolve())
    (path.parent / "small.toml").write_text(board.replace("dsp = 1_248", "dsp = 300"), "utf-8")
    with pytest.raises(UsageError, match="engine mine on small: an estimate of DSP"):
        load_engine(path)


@pytest.mark.parametrize("name", ["zcu999", "", "../engines/kv260", "kv260.tom"])
def test_unknown_engine(name: str) -> None:
    error = refused(name)
    assert error.found == f"{name!r} is not known"
    assert all(known in error.expected for known in engine_names())


def test_missing_file_and_folder(tmp_path: Path) -> None:
    assert refused(tmp_path / "none.toml").found == "cannot be read (No such file or directory)"
    assert refused(tmp_path).found.startswith("cannot be read")


@pytest.mark.parametrize("content", [b"groups =", b"\xff\xfe", b"groups = 1\ngroups = 2"])
def test_not_toml(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "mine.toml"
    path.write_bytes(content)
    assert refused(path).found.startswith("is not TOML")


@pytest.mark.parametrize(
    ("old", "new", "found"),
    [
        ("groups = 2", "", "groups is missing"),
        ('board = "kv260"', "", "board is missing"),
        ("groups = 2", "groups = 2\nlanes = 3", "lanes is not known"),
        ("groups = 2", 'groups = "2"', "groups is '2'"),
        ("groups = 2", "groups = 0", "groups is 0"),
        ("rows = 2", "rows = 2.5", "rows is 2.5"),
        ("clock_mhz = 300", "clock_mhz = 1e400", "clock_mhz is inf"),
        ("clock_mhz = 300", "clock_mhz = nan", "clock_mhz is nan"),
        ("max_hidden = 4096", "max_hidden = 4100", "max_hidden is 4100"),
        ("vector = 4", "vector = 3", "dimensions that do not agree: vector 3 must divide 16, the values of a beat"),
        ('board = "kv260"', "board = 260", "board is 260"),
        ("[depth]\nlayers = 6\ncodes_per_position = 4\ncode_dim = 1024", "depth = 2", "depth is 2"),
        ("code_dim = 1024", "", "depth.code_dim is missing"),
        ("code_dim = 1024", "code_dim = 250", "depth.code_dim is 250"),
        ("codes_per_position = 4", "codes_per_position = 17", "depth.codes_per_position is 17"),
        ('board = "kv260"', 'board = "kv999"', "'kv999' is not known"),
    ],
)
def test_faults(engine_file, old: str, new: str, found: str) -> None:
    error = refused(engine_file(old, new))
    assert error.found == found


def test_one_that_does_not_fit(engine_file) -> None:
    with pytest.raises(UsageError, match=r"engine mine on kv260: an estimate of DSP (.|\n)*Set groups to 2,"):
        load_engine(engine_file("groups = 2", "groups = 32"))
