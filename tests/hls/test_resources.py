"""The estimate of what an engine takes, against cases worked out by hand and against the code it is an estimate of."""

from __future__ import annotations

import re
from itertools import pairwise
from pathlib import Path

import pytest

import fastcar.hls
from fastcar.boards import load_board
from fastcar.hls import units
from fastcar.hls.memories import Memory, Storage, block_rams, lut_ram, mux, ultra_rams
from fastcar.hls.resources import (
    RESOURCES,
    USABLE,
    KernelEstimate,
    budget,
    check_fits,
    estimate,
    largest_groups,
    table,
    total,
)
from fastcar.toolkit.errors import FitError
from fastcar.toolkit.program.engine import DepthCapacity, EngineConfig

SOURCES = Path(fastcar.hls.__file__).parent


def engine(**changes: object) -> EngineConfig:
    """Fits a KV260 as it is."""
    fields = {
        "groups": 2,
        "vector": 2,
        "rows": 2,
        "max_layers": 40,
        "max_hidden": 4096,
        "max_mlp": 11264,
        "max_heads": 32,
        "max_kv_heads": 32,
        "max_group": 2,
        "max_head_dim": 128,
        "max_slots": 2304,
        "max_codes": 16384,
        "weight_fifo_beats": 4096,
        "clock_mhz": 300,
    }
    return EngineConfig(name="tried", **{**fields, **changes})


def kernel(name: str, config: EngineConfig, **options: bool) -> KernelEstimate:
    return next(kernel for kernel in estimate(config, **options) if kernel.name == name)


@pytest.mark.parametrize(
    ("depth", "width", "blocks"),
    [
        (1, 1, 0.5),
        (512, 36, 0.5),  # a RAMB18
        (512, 72, 1),
        (512, 73, 1.5),  # three RAMB18 of 36 bits
        (513, 36, 1),
        (1024, 36, 1),
        (2048, 18, 1),
        (2048, 16, 1),
        (4096, 9, 1),
        (4096, 10, 1.5),  # three RAMB18 of 4 bits
        (8192, 4, 1),
        (32768, 1, 1),
        (32769, 1, 1.5),
        (1536, 128, 6),  # 3 x 2 of 512 x 72
        (8192, 128, 30),  # 2 x 15 of 4096 x 9
    ],
)
def test_block_rams(depth: int, width: int, blocks: float) -> None:
    assert block_rams(depth, width) == blocks


@pytest.mark.parametrize(("depth", "width", "blocks"), [(512, 36, 1), (512, 72, 2), (1024, 16, 0.5), (4096, 16, 2)])
def test_two_reading_ports_have_no_widest_shape(depth: int, width: int, blocks: float) -> None:
    assert block_rams(depth, width, dual=True) == blocks


@pytest.mark.parametrize(
    ("depth", "width", "blocks"), [(1, 1, 1), (4096, 72, 1), (4097, 72, 2), (4096, 73, 2), (8192, 128, 4)]
)
def test_ultra_rams(depth: int, width: int, blocks: int) -> None:
    assert ultra_rams(depth, width) == blocks


@pytest.mark.parametrize(
    ("depth", "width", "luts"), [(1, 1, 8), (32, 14, 8), (32, 15, 16), (33, 7, 8), (64, 14, 16), (128, 7, 16 + 3)]
)
def test_lut_ram(depth: int, width: int, luts: int) -> None:
    assert lut_ram(depth, width) == luts


@pytest.mark.parametrize(
    ("inputs", "luts"), [(0, 0), (1, 0), (2, 0.5), (3, 1), (4, 1), (5, 2), (8, 2), (9, 4), (16, 4), (32, 8), (64, 16.5)]
)
def test_mux(inputs: int, luts: float) -> None:
    assert mux(inputs) == luts


def test_where_a_memory_goes() -> None:
    fifo = Memory("fifo", 8192, 128, 4)
    assert fifo.bits == 4 << 20
    assert fifo.storage(ultraram=True) == Storage(uram=16)
    assert fifo.storage(ultraram=False) == Storage(bram36=120)
    assert Memory("small", 64, 7, 3).storage(ultraram=True) == Storage(lut=24)
    assert Memory("shallow", 4095, 72).storage(ultraram=True).uram == 0
    assert Memory("deep", 4096, 64).storage(ultraram=True) == Storage(uram=1)
    assert Memory("narrow", 4096, 63).storage(ultraram=True).uram == 0
    assert Memory("table", 8192, 128, table=True).storage(ultraram=True).uram == 0
    assert Storage(1, 0.5, 2) + Storage(2, 1, 3) == Storage(3, 1.5, 5)


def test_blocks_of_single_units() -> None:
    config = engine(groups=3)
    assert kernel("processing groups", config).dsp == 16 * 4 * 3
    assert kernel("read ports", config).uram == 4 * 2  # 4096 x 128 bits: two of 4096 x 72, four ports
    assert kernel("read ports", engine(weight_fifo_beats=512)).bram36 == 4 * 2  # 64 commands are in LUT RAM
    assert kernel("row buffers", config).uram == 4  # 2 x 16384 / 8 words of 256 bits


def test_no_ultraram_without_any() -> None:
    config = engine()
    for with_uram, without in zip(estimate(config), estimate(config, ultraram=False), strict=True):
        assert without.uram == 0
        assert without.bram36 > with_uram.bram36 if with_uram.uram else without == with_uram


def test_total_is_the_sum() -> None:
    kernels = estimate(engine())
    assert len({kernel.name for kernel in kernels}) == len(kernels)
    for name in RESOURCES:
        assert getattr(total(kernels), name) == sum(getattr(kernel, name) for kernel in kernels)


@pytest.mark.parametrize("changes", [{}, {"rows": 10, "max_group": 8}])
def test_more_groups_take_more(changes: dict[str, int]) -> None:
    """But for attention's memories, which move between LUTs and block RAM as their banks get shallower."""
    tried = [estimate(engine(groups=groups, **changes)) for groups in range(1, 33)]
    for fewer, more in pairwise(tried):
        assert total(more).dsp == total(fewer).dsp + 64
        assert _logic(more) > _logic(fewer)


def _logic(kernels: list[KernelEstimate]) -> int:
    return sum(kernel.lut for kernel in kernels if kernel.name != "attention")


CAPACITY = DepthCapacity(layers=6, codes_per_position=4, code_dim=256)


@pytest.mark.parametrize("vector", [1, 4, 16])
def test_depth_transformers_take_more_and_nobody_else_pays(vector: int) -> None:
    """Units of their own; of the others only what holds the program, and what they share, is larger."""
    without, with_depth = estimate(engine(vector=vector)), estimate(engine(vector=vector, depth=CAPACITY))
    own = ("layer norm", "GELU", "depth transformer")
    assert {kernel.name for kernel in with_depth} == {kernel.name for kernel in without} | set(own)
    larger = {a.name for a, b in zip(without, (k for k in with_depth if k.name not in own), strict=True) if a != b}
    assert larger <= {"sequencer and program", "shared operators"} and "shared operators" in larger
    assert all(getattr(total(with_depth), name) >= getattr(total(without), name) for name in RESOURCES)


def test_blocks_of_a_depth_transformer() -> None:
    """By hand: a lane of LayerNorm has two products of its own; one table serves two values; 2 x 32 words of sums."""
    config = engine(vector=4, depth=CAPACITY)
    assert kernel("layer norm", config).dsp == 2 * 4 + 6
    assert kernel("layer norm", config).bram36 == 7.5  # 4096 / 16 words of 512 bits: 15 halves of 36 bits
    assert kernel("GELU", config).bram36 == 2  # 4096 x 16 bits, both ports read: 2 of 4096 x 9
    assert kernel("depth transformer", config).bram36 == 0  # 64 words of sums and 32 of tokens are in LUT RAM
    wider = engine(vector=4, rows=4, depth=CAPACITY.model_copy(update={"code_dim": 1024}))
    assert kernel("depth transformer", wider).bram36 == 4  # 4 x 128 words of 256 bits: four of 512 x 72
    deeper = engine(max_layers=256, depth=CAPACITY.model_copy(update={"layers": 64}))
    nodes = 1 + 8 * 256 + 3 + (4 + 2 + 8 * 64 + 3)
    assert kernel("sequencer and program", deeper).bram36 == block_rams(nodes, 256)


@pytest.mark.parametrize("ultraram", [True, False])
@pytest.mark.parametrize(
    ("field", "values"),
    [
        ("rows", range(1, 33)),
        ("max_hidden", (1024, 2048, 4096, 8192)),
        ("max_mlp", (4096, 8192, 16384, 32768)),
        ("max_codes", (1024, 4096, 16384, 32768)),
        ("weight_fifo_beats", (512, 1024, 4096, 16384)),
    ],
)
def test_more_to_hold_takes_no_less(field: str, values: tuple[int, ...], ultraram: bool) -> None:
    tried = [total(estimate(engine(**{field: value}), ultraram=ultraram)) for value in values]
    for less, more in pairwise(tried):
        assert _bits(more) >= _bits(less)
        assert more.lut > less.lut or field != "rows"
    assert _bits(tried[-1]) > _bits(tried[0])


def test_wider_vectors_take_more() -> None:
    for less, more in pairwise([total(estimate(engine(vector=vector))) for vector in (1, 2, 4, 8, 16)]):
        assert (more.dsp, more.lut) > (less.dsp, less.lut)
        assert more.lut > less.lut


def _bits(sums: KernelEstimate) -> float:
    """Capacity of the memory blocks, so that a move from eight block RAMs to one UltraRAM counts as none."""
    return sums.bram36 + 8 * sums.uram


def test_what_fits_is_silent() -> None:
    assert check_fits(engine(), load_board("kv260")) is None


def test_refusal_names_what_would_fit() -> None:
    board, config = load_board("kv260"), engine(groups=32)
    with pytest.raises(FitError) as caught:
        check_fits(config, board)
    message = str(caught.value)
    assert message.startswith("engine tried on kv260: an estimate of DSP ") and "\n" not in message
    lines = caught.value.dump.splitlines()
    assert all(cell in line for row, line in zip(table(config, board), lines, strict=True) for cell in row)
    groups = int(re.search(r"Set groups to (\d+), the most that fit\.$", message)[1])
    assert groups == largest_groups(config, board)
    check_fits(engine(groups=groups), board)
    with pytest.raises(FitError):
        check_fits(engine(groups=groups + 1), board)


def test_refusal_where_no_number_of_groups_fits() -> None:
    board = load_board("ultra96v2")
    with pytest.raises(FitError, match=r"No number of groups fits: .*\.$"):
        check_fits(engine(), board)
    assert largest_groups(engine(), board) == 0


def test_table() -> None:
    board, config = load_board("kv260"), engine()
    heading, *rows = table(config, board)
    assert heading == ("estimate", "DSP", "BRAM36", "URAM", "LUT")
    assert [row[0] for row in rows[-3:]] == ["total", "budget", "device"]
    assert [row[0] for row in rows[:-3]] == [unit.name for unit in units.units(config)]
    assert rows[-1][1:] == ("1248", "144", "64", "117120")
    assert rows[-2][1:] == ("998", "129", "57", "99552")
    assert all(len(row) == 5 for row in rows)


def test_budget_is_part_of_the_device() -> None:
    board = load_board("zcu102")
    for name in RESOURCES:
        assert 0 < USABLE[name] < 1
        assert getattr(budget(board), name) <= USABLE[name] * getattr(board.resources, name)


def test_numbers_are_those_of_the_code() -> None:
    """Depths, bursts and lanes that the estimate repeats."""

    def constant(file: str, name: str) -> int:
        return int(re.search(rf"constexpr int {name} = (\d+);", (SOURCES / "include/fastcar" / file).read_text())[1])

    assert units.PORTS == constant("types.h", "PORTS")
    assert units.BLOCK == constant("types.h", "BLOCK_SLOTS")
    assert units.PAIRS == constant("types.h", "WINDOW_PAIRS")
    assert units.MAX_ROWS == constant("types.h", "MAX_ROWS")
    assert units.CACHE_FIFO == constant("ports.h", "CACHE_FIFO_BEATS")
    assert units.COMMAND_FIFO == constant("engine.h", "COMMAND_DEPTH")
    assert units.OPERATION_FIFO == constant("engine.h", "OPERATION_DEPTH")
    operation = re.search(
        r"struct Operation \{(.*?)\};", (SOURCES / "include/fastcar/sequencer.h").read_text(), re.DOTALL
    )
    kinds = re.findall(r"^    (int|bool|float) \w+;", operation[1], re.MULTILINE)
    sequencer = units._sequencer(engine())
    assert sequencer.memories[1].width == sum({"bool": 1}.get(kind, 32) for kind in kinds)

    pragmas = re.findall(r"mode=m_axi port=(\w+) (.*)", (SOURCES / "engine/engine.cpp").read_text())
    options = {port: dict(re.findall(r"(\w+)=(\d+)", text)) for port, text in pragmas}
    for port in range(units.PORTS):
        assert options[f"weights{port}"]["max_read_burst_length"] == str(units.WEIGHT_BURST)
        assert options[f"weights{port}"]["num_read_outstanding"] == str(units.WEIGHT_OUTSTANDING)
    assert options["program"]["max_read_burst_length"] == str(units.PROGRAM_BURST)
    assert options["state"]["max_read_burst_length"] == str(units.CACHE_BURST)
    assert options["state"]["max_write_burst_length"] == str(units.CACHE_BURST)
    assert options["state"]["num_read_outstanding"] == str(units.CACHE_OUTSTANDING)
