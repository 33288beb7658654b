"""The units of the engine: their operators as the loops of ``include/fastcar`` state them, and their memories.

Nothing here was synthesized. Marked A is an assumption, Y what Yosys maps the RTL to; UG and PG are AMD's documents.
An array has the banks that the pipelined loops access in a clock.

The executor's loops run one after another, so they are taken to share what they have in common: one set of processing
groups for the linear layers and both passes of attention, and as many operators of a kind as the loop that needs most.
Vitis HLS shares within a function only (UG1399, function inlining): what stays a function of its own, as templates of
different arguments do, it builds once more. Until the calls are inlined, the estimate is too low in DSPs and LUTs.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from ..toolkit.program.descriptors import DEPTH_ENDING, DEPTH_INPUTS
from ..toolkit.program.engine import MAX_PROJECTOR, DepthCapacity, EngineConfig
from ..toolkit.program.registers import CONTROL, REPORT
from ..toolkit.settings import MAX_COLUMNS
from .memories import Memory, mux

__all__ = ["OPERATORS", "Unit", "units"]

OPERATORS = {
    # DSP48E2 and LUTs of one operator that takes operands every clock. A, all of them: binary32 operators as Vitis HLS
    # builds them by default (multiply "maxdsp", add "fulldsp", divide in LUTs), sizes from experience; the tables of
    # PG060 were not at hand.
    "multiply": (3, 80),
    "add": (2, 220),
    "divide": (0, 750),
    "compare": (0, 60),
    "from_int32": (0, 200),
    "from_int64": (0, 450),
    "to_int32": (0, 180),
    "divide_integer": (0, 1200),  # 32 bits by a number not known at build time: A, a row of 35 LUTs a bit
    "root": (2, 1500),  # square_root: A, one multiplier for the 25 digits, which follow one another
}

INPUTS = {"multiply": 64, "add": 64, "divide": 64, "compare": 64, "from_int64": 64, "divide_integer": 64}
"""Bits of an operator's inputs, chosen between the units that share it; of the others, 32."""

ROUND_LUT = 250  # round_half_even: A, two shifters of 5 levels, a comparison, an increment, a negation

PORTS, BLOCK, PAIRS, BEAT = 4, 16, 4, 128  # PORTS, BLOCK_SLOTS and WINDOW_PAIRS of types.h; bits of a beat
WEIGHT_OUTSTANDING, WEIGHT_BURST = 16, 16  # the read ports' INTERFACE pragmas in engine.cpp
CACHE_OUTSTANDING, CACHE_BURST = 16, 16  # the cache port's
PROGRAM_OUTSTANDING, PROGRAM_BURST = 16, 16
CACHE_FIFO, COMMAND_FIFO, OPERATION_FIFO = 512, 64, 16  # depths of ports.h and engine.h
MAX_ROWS = 32  # width of the index register
SCORES, WEIGHTS = "attention_.scores", "attention_.weights"  # variables of the executor
COLUMN_LUT = 250  # A: steps back by a frame, its comparisons and the counts of the ports
GROUP_DSP = 16  # Y
GROUP_LUT = 264 + 188 + 8  # Y: shift registers before the chains; adders behind them (4 x 18, 4 x 19, 2 x 20); control


@dataclass(frozen=True)
class Unit:
    """``operators``: of its loops, the most at a time; shared with other units. ``dsp`` and ``lut`` are its own."""

    name: str
    operators: dict[str, int] = field(default_factory=dict)
    memories: tuple[Memory, ...] = ()
    dsp: int = 0
    lut: float = 0.0


def units(c: EngineConfig) -> list[Unit]:
    """In the order of the data: memory ports, linear layers, what is between them, sampling, and what they share."""
    executor = [_accumulators(c), _outputs(c), _norm(c), _quantize(c), _heads(c), _attention(c), _score(c), _rows(c),
                _sampling(c), _control(c)]  # fmt: skip
    if c.depth is not None:
        executor += [_layer_norm(c), _gelu(), _depth(c, c.depth)]
    return [_axi(), _ports(c), _cache(c), _sequencer(c), _groups(c), _windows(c), *executor, _shared(executor)]


def _axi() -> Unit:
    """A read buffer holds outstanding requests x longest burst (UG1399), a write buffer alike (A); the logic: A."""
    registers = len(CONTROL.words) + len(REPORT.words)
    memories = (
        Memory("weight read buffers", WEIGHT_OUTSTANDING * WEIGHT_BURST, BEAT, PORTS),
        Memory("cache buffers", CACHE_OUTSTANDING * CACHE_BURST, BEAT, 2),
        Memory("program read buffer", PROGRAM_OUTSTANDING * PROGRAM_BURST, BEAT),
    )
    return Unit("AXI adapters", memories=memories, lut=PORTS * 700 + 1300 + 700 + 20 * registers)


def _ports(c: EngineConfig) -> Unit:
    memories = (Memory("commands", COMMAND_FIFO, 66, PORTS), Memory("beats", c.weight_fifo_beats, BEAT, PORTS))
    return Unit("read ports", memories=memories, lut=PORTS * (350 + 2 * 60))  # A: two counters, addresses; FIFO control


def _cache(c: EngineConfig) -> Unit:
    memories = (Memory("beats", CACHE_FIFO, BEAT, 2), Memory("commands", 2 * c.max_kv_heads + 16, 68))
    return Unit("cache port", memories=memories, lut=600)  # A


def _sequencer(c: EngineConfig) -> Unit:
    """Nodes of 8 words; products of addresses, the checks of a program and of the size of a trace: A."""
    depth = 0 if c.depth is None else MAX_PROJECTOR + len(DEPTH_INPUTS) + 8 * c.depth.layers + len(DEPTH_ENDING)
    memories = (
        Memory("nodes", 1 + 8 * c.max_layers + 3 + depth, 256),
        Memory("operations", OPERATION_FIFO, 194),
        Memory("blocks of columns", MAX_COLUMNS, 32, PORTS),
    )
    return Unit("sequencer and program", memories=memories, dsp=18 + 30 + 12, lut=2000 + 2500 + COLUMN_LUT)


def _groups(c: EngineConfig) -> Unit:
    columns = PORTS * c.groups
    return Unit("processing groups", dsp=GROUP_DSP * columns, lut=GROUP_LUT * columns)


def _windows(c: EngineConfig) -> Unit:
    """A column's windows with the int4 expansion, and what chooses the operands of a group."""
    beats = c.max_head_dim // 16
    column = BEAT * 2 * PAIRS * mux(4)  # bank and half of 2 x WINDOW_PAIRS outputs, once for all groups (A)
    column += 2 * BEAT * (mux(2 * beats) + mux(2) + mux(2))  # of K and of V, and which of them
    column += 32 * 20 + 8 * mux(16)  # A: int4 times multiplier, 32 products of 4 x 8 bits; the multiplier
    member = 2 * BEAT * (mux(PAIRS) + mux(2)) + BEAT * mux(3)  # pair; linear or attention; row, query or weights
    shared = BEAT * mux(c.rows)  # the row's activations, the same for all columns
    return Unit("windows and operands", lut=PORTS * column + PORTS * c.groups * member + c.groups * shared)


def _accumulators(c: EngineConfig) -> Unit:
    """Two sums a pair and row: the group's of 20 bits chosen, added in 32; in attention, two sums a group."""
    cells = PORTS * PAIRS * c.rows
    lut = cells * 2 * (20 * mux(c.groups) + 32) + PORTS * c.groups * 2 * 32
    lut += 40 * c.groups + 3 * MAX_ROWS  # A: a group's place in the dealing; Yosys has 20 a group for drs_unit.sv
    return Unit("accumulators and dealing", lut=lut)


def _outputs(c: EngineConfig) -> Unit:
    """Two sums a clock of two banks: scaled by output and row, biased; added to x, rounded to bfloat16, or SwiGLU."""
    operators = {"from_int32": 2 + 1, "multiply": 4 + 4, "add": 2 + 2, "compare": 2, "divide_integer": 1}
    words = 2 * 64 * mux(4 * PORTS * 4)  # a pair's scales and biases, of four tiles
    lut = 64 * mux(2 * PORTS * PAIRS * c.rows) + words + 2 * 40 + ROUND_LUT
    return Unit("scaling, residual, SwiGLU", operators, (Memory("sigmoid", 4096, 16, table=True),), lut=lut)


def _norm(c: EngineConfig) -> Unit:
    """A lane: x / step to int16, its square (one DSP), times the gain; once a row: mean, root, scale."""
    v = c.vector
    operators = {"divide": v, "from_int32": v, "multiply": v, "add": 1, "from_int64": 1, "root": 1}
    lanes = max(v, 16)  # 16 words of gains come in a clock
    memories = (Memory("gain", _ceil(c.max_hidden, lanes), 32 * lanes), Memory("work", _ceil(c.max_hidden, v), 32 * v))
    return Unit("norm", operators, memories, dsp=v, lut=v * (ROUND_LUT + 48))


def _quantize(c: EngineConfig) -> Unit:
    """Two of them, as the compiler makes of two capacities; the largest magnitude is also looked for by the norm."""
    v = c.vector
    return Unit("quantize rows", {"divide": v}, lut=2 * v * ROUND_LUT + 3 * v * (16 + 32))


def _layer_norm(c: EngineConfig) -> Unit:
    """A lane: x / step to int16, its square and n times it less the sum (one DSP each), then gain and bias.

    Once a row: n times the squares less the sum's square, of 15 x 46 and 31 x 31 bits (A: 6 DSPs), and the root.
    """
    v = c.vector
    operators = {"divide": v, "from_int32": v, "multiply": v, "add": v, "from_int64": v, "root": 1}
    lanes = max(v, 16)  # 16 words of biases come in a clock
    biases = Memory("biases", _ceil(c.max_hidden, lanes), 32 * lanes)
    return Unit("layer norm", operators, (biases,), dsp=2 * v + 6, lut=v * (ROUND_LUT + 48 + 32 + 48) + 2 * 64)


def _gelu() -> Unit:
    """Two values a clock: to an index, one table for both, twice a product; whether a sink takes them so."""
    operators = {"multiply": 4 + 2 * 3, "from_int32": 2 + 2, "compare": 4}
    return Unit(
        "GELU", operators, (Memory("normal", 4096, 16, table=True),), lut=2 * (ROUND_LUT + 40) + 4 * 32 * mux(2)
    )


def _depth(c: EngineConfig, depth: DepthCapacity) -> Unit:
    """Residual codes and their sums; a third capacity of rows to quantize; which of two models and caches (A).

    Its header's checks, its layout and the addresses of codes: products of 32 bits, A.
    """
    v, lanes = c.vector, max(8, c.vector)
    words = MAX_ROWS // 4 * depth.codes_per_position
    memories = (
        Memory("sums of codes", c.rows * _ceil(depth.code_dim, lanes), 32 * lanes),
        Memory("tokens, uniforms, codes", words, 32, 3 * 4),
    )
    chosen = (10 + 2 * 8) * 32 * mux(2)  # fields of a shape; of a layout, for the sequencer and the executor
    operators = {"from_int32": 8, "multiply": 8, "add": 8, "divide": v}
    return Unit("depth transformer", operators, memories, dsp=24, lut=v * (ROUND_LUT + 48) + chosen + 1500)


def _heads(c: EngineConfig) -> Unit:
    """Rotation and quantization of VECTOR values a clock, and the constants of the heads."""
    v, beats = c.vector, c.max_head_dim // 16
    qkv = (c.max_heads + 2 * c.max_kv_heads) * beats
    memories = (
        Memory("cosines and sines", _ceil(c.max_head_dim, v), 32 * v, 2),
        Memory("q, k, v", c.rows * qkv, BEAT),
        Memory("constants", _ceil(3 * c.max_heads + 3 * c.max_kv_heads, 16), 512),
    )
    rotation = 4 * 512 * 2  # A: 16 words turned to their places in four arrays
    operators = {"multiply": 2 * v, "add": v, "divide": v}
    return Unit("rotary heads", operators, memories, lut=v * (ROUND_LUT + 32) + rotation)


def _attention(c: EngineConfig) -> Unit:
    """Score buffer, 17 exponentials (16 lanes and the position's own), weights, mixed values, outputs."""
    heads, entries, v = min(c.groups, c.max_group), min(c.groups, 2 * c.max_group), c.vector
    blocks, pairs = c.max_slots // BLOCK // PORTS, max(1, v // 2)
    lanes, waves = BLOCK + 1, _ceil(2 * c.max_group, c.groups)
    memories = (
        # Written: a pair of slots of each port and entry; read: the 16 slots of a block.
        Memory("scores", blocks * _ceil(c.max_group, c.groups), 64, heads * PORTS * BLOCK // 2, variable=SCORES),
        Memory("weights", blocks * waves, BEAT, entries * PORTS, variable=WEIGHTS),
        Memory("mixed", _ceil(c.max_head_dim // 2, pairs) * waves, 64, entries * PORTS * pairs),
        Memory("queries", _ceil(c.max_group, c.groups) * (c.max_head_dim // 16), BEAT, heads),
        Memory("exponentials", 1024, 16, _ceil(lanes, 2), table=True),
        Memory("blocks of columns", MAX_COLUMNS, 32, PORTS),
    )
    operators = {"from_int32": lanes, "multiply": lanes, "compare": 2 * lanes, "to_int32": lanes}
    operators |= {"from_int64": v + 1, "divide": v, "divide_integer": 1}
    lut = lanes * 40 + BLOCK * 62  # A: a shifter; whether a slot is seen
    lut += COLUMN_LUT + (PORTS + 1) * (16 * mux(3) + 30)  # A: the lanes of columns of a port's block, and which block
    lut += heads * PORTS * 2 * 50  # the peak: compared and chosen
    lut += v * 2 * PORTS * 40 + GROUP_LUT  # sums over ports in 40 bits; the position's own product
    return Unit("attention", operators, memories, dsp=GROUP_DSP + 2 * v, lut=lut)


def _score(c: EngineConfig) -> Unit:
    """Temporal Attention Score: one product of 16 lanes a clock, its multiplier (20 x 32 bits), the decision (A).

    The largest or least head: its sum, a comparison and a choice of 32 bits, once a row times the heads (32 x 16 bits).
    """
    beats = c.max_head_dim // 16
    memories = (
        Memory("query", c.max_heads * beats, BEAT),
        Memory("earlier keys", c.max_kv_heads * beats, BEAT),
        Memory("scores", c.max_layers * MAX_ROWS, 64),
        Memory("thresholds", c.max_layers + 1, 64),
    )
    return Unit("temporal attention score", memories=memories, dsp=GROUP_DSP + 2 + 4 + 2, lut=GROUP_LUT + 1200 + 3 * 32)


def _rows(c: EngineConfig) -> Unit:
    """Residual stream, wide rows and operands; embedding and replayed outputs, 8 values a clock; a beat to trace."""
    lanes = max(8, c.vector)
    memories = (
        Memory("residual stream", c.rows * _ceil(c.max_hidden, lanes), 32 * lanes, variable="x_"),
        Memory("wide rows", c.rows * _ceil(c.max_wide, lanes), 32 * lanes, variable="wide_"),
        Memory("operands", _ceil(c.max_inputs, 16), BEAT, c.rows, variable="x8_"),
    )
    # A: the words of two arrays' banks, the operand of a row, one of these, heads and scale; its addresses
    traced = BEAT * (mux(2 * lanes // 4) + mux(c.rows) + mux(4)) + 150
    return Unit("row buffers", {"from_int32": 8, "multiply": 8, "add": 8}, memories, lut=8 * 40 + traced)


def _sampling(c: EngineConfig) -> Unit:
    """Guidance, sort of three passes, weights, choice; products of 64 bits: A."""
    memories = (
        Memory("keys", c.max_codes, 32, 2),
        Memory("codes", c.max_codes, 16, 2),
        Memory("weights", c.max_codes, 32),
        Memory("logits", c.max_codes, 32),
        Memory("counts", 2048, 16),
        Memory("exponentials", 1024, 32, table=True),
    )
    return Unit("sampling", {"multiply": 3, "add": 3, "compare": 1, "to_int32": 1}, memories, dsp=12, lut=2500)


def _control(c: EngineConfig) -> Unit:
    """States of the loops, products of the executor's addresses and of what a traced row takes: A."""
    return Unit("control", dsp=18 + 6, lut=3000 + 10 * c.rows)


def _shared(executor: list[Unit]) -> Unit:
    """Of each kind as many as the unit that needs most; each chooses between the units that need so many."""
    dsp, lut = 0, 0.0
    for name, (blocks, logic) in OPERATORS.items():
        counts = [unit.operators.get(name, 0) for unit in executor]
        dsp += max(counts) * blocks
        for place in range(max(counts)):
            lut += logic + INPUTS.get(name, 32) * mux(sum(count > place for count in counts))
    return Unit("shared operators", dsp=dsp, lut=lut)


def _ceil(n: int, d: int) -> int:
    return -(-n // d)
