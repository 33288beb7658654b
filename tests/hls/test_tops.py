"""The top function of each kernel: there for every kernel, clean, compiled alone, and equal to the NumPy reference.

The kernels themselves are tested by their benches; here it is what the tops connect: sizes, order of ports, buffers.
"""

from __future__ import annotations

import ctypes
import os
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest
from small_engine import small_engine

import fastcar
from fastcar.export.overlay.weights import interleave_gate_up, pack_linear
from fastcar.hls.build import FLAGS, compile_with, include_flags
from fastcar.hls.codegen import write_headers
from fastcar.hls.golden import golden_cases
from fastcar.hls.lint import kernels, lint_files
from fastcar.hls.lint.parser import parse
from fastcar.toolkit.config import TAS_HEADS
from fastcar.toolkit.numerics.bfloat16 import from_bfloat16, to_bfloat16
from fastcar.toolkit.numerics.gelu import gelu
from fastcar.toolkit.numerics.layer_norm import layer_norm
from fastcar.toolkit.numerics.linear import QuantizedRows, linear, quantize_rows
from fastcar.toolkit.numerics.mlp import swiglu
from fastcar.toolkit.numerics.norm import rms_norm
from fastcar.toolkit.numerics.tas import NEVER, Pooling, replay_decision, temporal_attention_score
from fastcar.toolkit.numerics.weights import LinearWeights
from fastcar.toolkit.program.registers import POLICY_CODES

HLS = Path(fastcar.__file__).parent / "hls"
TOPS = sorted((HLS / "top").glob("*_top.cpp"))
NO_KERNELS = {"float32", "visible", "engine"}  # functions inside of kernels; what all of them make together
# Large enough for the golden vectors.
CONFIG = small_engine(max_hidden=512, max_heads=32, max_kv_heads=10, max_head_dim=128, max_codes=4096)

# -O0: optimizing, the compiler looks into the arithmetic headers and warns of what their constructors leave unset.
WARNINGS = ("-O0", "-Werror")

# The tops behind plain pointers and numbers. Streams are filled port by port; what is left in them at the end, and
# what the simulation throws, is -1.
SHIMS = """
#include "top/attention_top.h"
#include "top/drs_top.h"
#include "top/gelu_top.h"
#include "top/layer_norm_top.h"
#include "top/processing_group_top.h"
#include "top/quant_linear_top.h"
#include "top/quantize_rows_top.h"
#include "top/replay_decision_top.h"
#include "top/replay_mlp_top.h"
#include "top/rms_norm_top.h"
#include "top/rotary_embedding_top.h"
#include "top/sample_top.h"
#include "top/swiglu_top.h"
#include "top/temporal_attention_score_top.h"

using namespace fastcar;

template <typename Call>
int64_t streamed(const beat_t* beats, const int* lengths, Call call) {
    stream<beat_t> ports[PORTS];
    for (int port = 0; port < PORTS; port++) {
        for (int beat = 0; beat < lengths[port]; beat++) ports[port].write(*beats++);
    }
    try {
        const int64_t clocks = call(ports);
        for (auto& port : ports) expect_drained(port);
        return clocks;
    } catch (const std::exception&) {
        return -1;
    }
}

using Operand = const beat_t (*)[MAX_INPUTS / BEAT_BYTES];

extern "C" {

int64_t attention(const beat_t* beats, const int* lengths, const beat_t* q, const beat_t* k, const beat_t* v,
                  const float* exponent, float v_scale, int position, int sinks, int window, int columns, int places,
                  int first, int group, int head_dim, float* y, int64_t* busy) {
    return streamed(beats, lengths, [&](auto& ports) {
        return attention_top(ports, q, k, v, exponent, v_scale, position, sinks, window, columns, places, first, group,
                             head_dim, y, *busy);
    });
}
void drs(uint32_t index, int rows, int reassign, int pairs, int* registers, int* skip, int* waves) {
    Dealing dealing;
    bool skips;
    drs_top(index, rows, reassign != 0, pairs, dealing, skips, *waves);
    *skip = skips;
    *registers++ = dealing.count;
    for (const auto& row : dealing.mapping) *registers++ = row;
}
void gelu_of(const float* x, float* y, int n) {
    for (int i = 0; i < n; i++) y[i] = gelu_top(x[i]);
}
float layer_norm(const float* x, const float* gain, const float* bias, float eps, beat_t* y, int n) {
    return layer_norm_top(x, gain, bias, eps, y, n);
}
void processing_group(const beat_t* weights, const beat_t* x, int x_unsigned, int64_t* sums) {
    sum_t sum0, sum1;
    processing_group_top(weights[0], weights[1], *x, x_unsigned != 0, sum0, sum1);
    sums[0] = sum0;
    sums[1] = sum1;
}
int64_t quant_linear(const beat_t* beats, const int* lengths, int inputs, int outputs, int int4, int bias,
                     uint32_t index, int rows, int reassign, const beat_t* x, const float* x_scale, float* y,
                     int64_t* busy) {
    return streamed(beats, lengths, [&](auto& ports) {
        return quant_linear_top(ports, inputs, outputs, int4 != 0, bias != 0, index, rows, reassign != 0, (Operand)x,
                                x_scale, (float (*)[MAX_WIDE])y, *busy);
    });
}
float quantize_rows(const float* x, beat_t* y, int n) { return quantize_rows_top(x, y, n); }
uint32_t replay_decision(const int64_t* score, int64_t threshold, int eligible, const int32_t* age, int max_age,
                         int policy, int rows) {
    return replay_decision_top(score, threshold, eligible != 0, age, max_age, policy, rows);
}
int64_t replay_mlp(const beat_t* beats, const int* lengths, int hidden, int mlp, int int4, int bias, uint32_t index,
                   int rows, int reassign, const beat_t* x, const float* x_scale, float* y) {
    return streamed(beats, lengths, [&](auto& ports) {
        replay_mlp_top(ports, hidden, mlp, int4 != 0, bias != 0, index, rows, reassign != 0, (Operand)x, x_scale,
                       (float (*)[MAX_HIDDEN])y);
        return 0;
    });
}
float rms_norm(const float* x, const float* gain, float eps, beat_t* y, int n) {
    return rms_norm_top(x, gain, eps, y, n);
}
void rotary_embedding(const float* x, const float* cos, const float* sin, const float* scale, int heads, int turned,
                      int head_dim, beat_t* y) {
    rotary_embedding_top(x, cos, sin, scale, heads, turned, head_dim, y);
}
int sample(const float* conditional, const float* unconditional, float guidance, float inverse_temperature, int top_k,
           int top_p, int uniform, int codes, float* logits) {
    return sample_top(conditional, unconditional, guidance, inverse_temperature, top_k, top_p, uniform, codes, logits);
}
void swiglu_of(const float* gate, const float* up, float* y, int n) {
    for (int i = 0; i < n; i++) y[i] = swiglu_top(gate[i], up[i]);
}
int64_t temporal_attention_score(const beat_t* q, const beat_t* k_before, const int32_t* multiplier, int heads,
                                 int group, int head_beats, int reduction) {
    return temporal_attention_score_top(q, k_before, multiplier, heads, group, head_beats, reduction);
}
}
"""
RESULTS = {  # of shims that return something
    "layer_norm": ctypes.c_float,
    "quantize_rows": ctypes.c_float,
    "rms_norm": ctypes.c_float,
    "replay_decision": ctypes.c_uint32,
    "sample": ctypes.c_int,
    "attention": ctypes.c_int64,
    "quant_linear": ctypes.c_int64,
    "replay_mlp": ctypes.c_int64,
    "temporal_attention_score": ctypes.c_int64,
}
Top = Callable[..., float]


@pytest.fixture(scope="module")
def top(tmp_path_factory: pytest.TempPathFactory) -> Top:
    """Calls a shim: arrays as they lie in memory, np.float32 and np.int64 as such, other numbers as int."""
    folder = tmp_path_factory.mktemp("tops")
    write_headers(folder / "generated", CONFIG)
    shims = folder / "shims.cpp"
    shims.write_text(SHIMS)
    common = [*FLAGS, *WARNINGS, "-fPIC", *include_flags(folder / "generated")]
    sources = [*TOPS, shims]
    objects = [str(folder / f"{source.stem}.o") for source in sources]
    compile_one = lambda source, output: compile_with([*common, "-c", str(source), "-o", output])
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        list(pool.map(compile_one, sources, objects))
    library = folder / "tops.so"
    compile_with(["-shared", *objects, "-o", str(library), "-pthread"])
    functions = ctypes.CDLL(str(library))

    def call(name: str, *arguments: object) -> float:
        function = getattr(functions, name)
        function.restype = RESULTS.get(name)
        return function(*map(_passed, arguments))

    return call


def _passed(argument: object) -> object:
    if isinstance(argument, np.ndarray):
        assert argument.flags.c_contiguous
        return ctypes.c_void_p(argument.ctypes.data)
    if isinstance(argument, np.float32):
        return ctypes.c_float(float(argument))
    return ctypes.c_int64(int(argument)) if isinstance(argument, np.int64) else ctypes.c_int(int(argument))


def memory(array: np.ndarray, *shape: int) -> np.ndarray:
    """The array in a corner of a port's memory; what lies around it must not count."""
    whole = unset(array.dtype, *shape)
    whole[tuple(slice(size) for size in array.shape)] = array
    return whole


def unset(kind: object, *shape: int) -> np.ndarray:
    whole = np.empty(shape, kind)
    whole.view(np.uint8)[...] = 0x5A
    return whole


def assert_same_bits(found: np.ndarray, expected: np.ndarray) -> None:
    assert found.dtype == expected.dtype
    np.testing.assert_array_equal(found.view(f"i{found.itemsize}"), expected.view(f"i{expected.itemsize}"))


def test_every_kernel_has_a_top():
    benches = {path.name.removesuffix("_tb.cpp") for path in (HLS / "tb").glob("*_tb.cpp")}
    assert benches > NO_KERNELS
    files = {f"{kernel}_top.{suffix}" for kernel in benches - NO_KERNELS for suffix in ("h", "cpp")}
    assert {path.name for path in (HLS / "top").iterdir()} == files


@pytest.mark.parametrize("path", TOPS, ids=lambda path: path.stem)
def test_top_states_the_interface_of_every_port(path):
    (function,) = parse(path.read_text(), str(path)).functions
    assert function.name == path.stem
    ports = [pragma.value("port") for pragma in function.pragmas("INTERFACE")]
    assert ports == [*(parameter.name for parameter in function.parameters), "return"]


def test_checker_finds_nothing_and_looks_at_the_tops_by_default():
    assert lint_files([HLS / "top"]) == []
    assert set((HLS / "top").iterdir()) <= set(kernels())


def test_tops_compile_as_hardware(tmp_path):
    """Without the simulation's streams and branches, as a synthesis tool reads them."""
    write_headers(tmp_path, CONFIG)
    everything = tmp_path / "tops.cpp"
    everything.write_text("".join(f'#include "{path}"\n' for path in TOPS))
    flags = [flag for flag in FLAGS if flag != "-DFASTCAR_SIMULATION"]
    compile_with([*flags, *WARNINGS, "-fsyntax-only", *include_flags(tmp_path), str(everything)])


@pytest.mark.parametrize("n", [1, 50, 333, CONFIG.max_wide])
def test_quantize_rows(top, n):
    x = np.random.default_rng(n).standard_normal((1, n)).astype(np.float32)
    y = unset(np.int8, CONFIG.max_wide)
    scale = top("quantize_rows", memory(x[0], CONFIG.max_wide), y, n)
    assert_row(y, scale, quantize_rows(x))


def assert_row(y: np.ndarray, scale: float, expected: QuantizedRows) -> None:
    """Lanes of the last beat behind the row are 0, beats behind it as they were."""
    n = expected.values.size
    np.testing.assert_array_equal(y[:n], expected.values[0])
    beats = -(-n // 16) * 16
    assert not y[n:beats].any() and (y[beats:] == 0x5A).all()
    assert np.float32(scale) == expected.scale.item()


@pytest.mark.parametrize("n", [16, 100, CONFIG.max_hidden])
def test_rms_norm(top, n):
    x, gain = (np.random.default_rng(n).standard_normal((2, n)) * 0.01).astype(np.float32)
    y = unset(np.int8, CONFIG.max_hidden)
    ports = [memory(array, CONFIG.max_hidden) for array in (x, gain)]
    scale = top("rms_norm", *ports, np.float32(1e-5), y, n)
    assert_row(y, scale, rms_norm(x[None], gain, 1e-5))


@pytest.mark.parametrize("n", [16, 100, CONFIG.max_hidden])
def test_layer_norm(top, n):
    x, gain, bias = (np.random.default_rng(n).standard_normal((3, n)) * 0.01 + 0.1).astype(np.float32)
    y = unset(np.int8, CONFIG.max_hidden)
    ports = [memory(array, CONFIG.max_hidden) for array in (x, gain, bias)]
    scale = top("layer_norm", *ports, np.float32(1e-5), y, n)
    assert_row(y, scale, layer_norm(x[None], gain, bias, 1e-5))


def test_swiglu(top):
    gate, up = (np.random.default_rng(1).standard_normal((2, 1001)) * 6).astype(np.float32)
    y = np.empty_like(gate)
    top("swiglu_of", gate, up, y, y.size)
    assert_same_bits(y, swiglu(gate, up))


def test_gelu(top):
    x = (np.random.default_rng(2).standard_normal(1001) * 6).astype(np.float32)
    y = np.empty_like(x)
    top("gelu_of", x, y, y.size)
    assert_same_bits(y, gelu(x))


def test_processing_group(top):
    for case in golden_cases("processing_group").values():
        sums = np.empty(2, np.int64)
        weights = np.stack([case["weights0"], case["weights1"]])
        top("processing_group", weights, case["x"].copy(), case["x_unsigned"].item(), sums)
        np.testing.assert_array_equal(sums, case["sums"])


def test_rotary_embedding(top):
    heads_room = CONFIG.max_heads + 2 * CONFIG.max_kv_heads
    for case in golden_cases("rotary_embedding").values():
        heads, turned, head_dim = (case[name].item() for name in ("heads", "turned", "head_dim"))
        x = memory(case["x"].reshape(-1), heads_room * CONFIG.max_head_dim)
        angles = [memory(case[name][0], CONFIG.max_head_dim) for name in ("cos", "sin")]
        y = unset(np.int8, heads_room * CONFIG.max_head_dim)
        top("rotary_embedding", x, *angles, memory(case["scale"], heads_room), heads, turned, head_dim, y)
        np.testing.assert_array_equal(y[: heads * head_dim], case["values"].reshape(-1))
        assert (y[heads * head_dim :] == 0x5A).all()


@pytest.mark.parametrize("tas_heads", TAS_HEADS)
@pytest.mark.parametrize(("heads", "kv_heads", "head_dim"), [(1, 1, 16), (6, 2, 48), (10, 10, 80), (32, 4, 128)])
def test_temporal_attention_score(top, heads, kv_heads, head_dim, tas_heads):
    rng = np.random.default_rng(heads)
    q, k_before = (rng.integers(-128, 128, (1, count, head_dim)).astype(np.int8) for count in (heads, kv_heads))
    multiplier = rng.integers(1, 128, heads).astype(np.int32)
    room = CONFIG.max_heads * CONFIG.max_head_dim
    ports = memory(q.reshape(-1), room), memory(k_before.reshape(-1), room), memory(multiplier, CONFIG.max_heads)
    reduction = TAS_HEADS.index(tas_heads)
    score = top("temporal_attention_score", *ports, heads, heads // kv_heads, head_dim // 16, reduction)
    assert score == temporal_attention_score(q, k_before, multiplier, tas_heads).item()


@pytest.mark.parametrize("policy", POLICY_CODES)
@pytest.mark.parametrize("rows", [1, 5, 10, 32])
def test_replay_decision(top, policy, rows):
    rng = np.random.default_rng(rows)
    for threshold in (-1000, 0, 300, 301, NEVER):
        for eligible in (True, False):
            score, age = rng.integers(-300, 1000, rows), rng.integers(0, 3, rows).astype(np.int32)
            ports = memory(score, 32), np.int64(threshold), eligible, memory(age, 32)
            bits = top("replay_decision", *ports, 2, POLICY_CODES[policy], rows)
            everyone = np.full(rows, eligible)
            expected = replay_decision(score, threshold, everyone, age, 2, Pooling.of(policy, rows))
            np.testing.assert_array_equal(bits >> np.arange(32) & 1, np.pad(expected, (0, 32 - rows)))


@pytest.mark.parametrize("rows", [1, 5, 31, 32])
def test_drs(top, rows):
    for index in (0, 1 << (rows - 1), 0x5A5A5A5A & ((1 << rows) - 1), (1 << rows) - 1):
        for reassign in (True, False):
            for pairs in (1, 3, 4):
                registers, skip, waves = np.empty(33, np.int32), np.empty(1, np.int32), np.empty(1, np.int32)
                top("drs", np.int64(index), rows, reassign, pairs, registers, skip, waves)
                computes = (index >> np.arange(rows) & 1).astype(np.bool_)
                dealt = np.flatnonzero(computes | (not reassign))
                np.testing.assert_array_equal(registers, [dealt.size, *dealt, *[0] * (32 - dealt.size)])
                assert skip.item() == (dealt.size == 0)
                assert waves.item() == -(-dealt.size * pairs // CONFIG.groups)


SHAPES = [(16, 8, None), (65, 7, None), (100, 75, None), (96, 40, 32), (160, 75, 160), (704, 33, 64)]


@pytest.mark.parametrize("bias", [False, True])
@pytest.mark.parametrize(("inputs", "outputs", "group"), SHAPES)
@pytest.mark.parametrize(("rows", "reassign"), [(1, True), (10, True), (32, False)])
def test_quant_linear(top, inputs, outputs, group, rows, reassign, bias):
    rng = np.random.default_rng(inputs + rows)
    weights, x = random_weights(rng, inputs, outputs, group, bias), random_rows(rng, rows, inputs)
    index = int(rng.integers(1, 1 << rows))
    computes = (index >> np.arange(rows) & 1).astype(np.bool_)
    stream = pack_linear(weights)
    y, busy = unset(np.float32, CONFIG.rows, CONFIG.max_wide), np.zeros(1, np.int64)
    shape = inputs, outputs, group is not None, bias, np.int64(index), rows, reassign
    clocks = top("quant_linear", *filled(stream), *shape, *operand(x), y, busy)
    expected = unset(np.float32, CONFIG.rows, CONFIG.max_wide)
    expected[:rows, :outputs][computes] = linear(x, weights)[computes]
    assert_same_bits(y, expected)
    # A pair of outputs of a row takes a group clock for every 16 inputs.
    chunks = -(-inputs // 16) if group is None else -(-inputs // 32) * 2
    assert busy.item() == computes.sum() * (-(-outputs // 8) * 4) * chunks
    assert clocks >= max(stream.shape[1], busy.item() / (4 * CONFIG.groups))


def filled(streams: Sequence[np.ndarray]) -> tuple[np.ndarray, np.ndarray]:
    """All beats, port by port, and how many are each port's."""
    return np.concatenate(streams), np.array([len(stream) for stream in streams], np.int32)


def random_weights(
    rng: np.random.Generator, inputs: int, outputs: int, group: int | None, bias: bool = False
) -> LinearWeights:
    most = 127 if group is None else 7
    values = rng.integers(-most, most + 1, (inputs, outputs)).astype(np.int8)
    multiplier = None if group is None else rng.integers(1, 19, (inputs // group, outputs)).astype(np.uint8)
    scale = rng.uniform(1e-4, 1e-2, outputs).astype(np.float32)
    return LinearWeights(values, scale, multiplier, rng.normal(0, 2, outputs).astype(np.float32) if bias else None)


def random_rows(rng: np.random.Generator, rows: int, inputs: int) -> QuantizedRows:
    values = rng.integers(-127, 128, (rows, inputs)).astype(np.int8)
    return QuantizedRows(values, rng.uniform(0.01, 1, (rows, 1)).astype(np.float32))


def operand(x: QuantizedRows) -> tuple[np.ndarray, np.ndarray]:
    """The ports x and x_scale of a linear layer."""
    return memory(x.values, CONFIG.rows, CONFIG.max_inputs), memory(x.scale[:, 0], CONFIG.rows)


@pytest.mark.parametrize("bias", [False, True])
@pytest.mark.parametrize(("hidden", "mlp", "group"), [(80, 72, None), (96, 160, 32)])
@pytest.mark.parametrize(("index", "reassign"), [(0b11010, True), (0b00111, False), (0, True)])
def test_replay_mlp(top, hidden, mlp, group, index, reassign, bias):
    """Rows that replay keep what the memory held; if all do, no weight is asked for."""
    rng = np.random.default_rng(hidden + index)
    rows = 5
    gate_up, down = (random_weights(rng, *sizes, group, bias) for sizes in ((hidden, 2 * mlp), (mlp, hidden)))
    x = random_rows(rng, rows, hidden)
    stream = np.concatenate([pack_linear(interleave_gate_up(gate_up)), pack_linear(down)], axis=1)
    y = unset(np.float32, CONFIG.rows, CONFIG.max_hidden)
    shape = hidden, mlp, group is not None, bias, np.int64(index), rows, reassign
    assert top("replay_mlp", *filled(stream if index else stream[:, :0]), *shape, *operand(x), y) == 0

    hidden_rows = quantize_rows(swiglu(*np.split(linear(x, gate_up), 2, axis=-1)))
    computes = (index >> np.arange(rows) & 1).astype(np.bool_)
    expected = unset(np.float32, CONFIG.rows, CONFIG.max_hidden)
    expected[:rows, :hidden][computes] = from_bfloat16(to_bfloat16(linear(hidden_rows, down)))[computes]
    assert_same_bits(y, expected)


def test_attention(top):
    for name, case in golden_cases("attention").items():
        names = ("position", "sinks", "window", "columns", "places", "first", "group", "head_dim")
        sizes = position, sinks, window, columns, places, first, group, head_dim = [case[key].item() for key in names]
        slot = np.arange(case["k_past"].shape[2])
        runs = (slot < position) & ((slot < sinks) | (slot >= position - (window or position)))
        seen = runs.copy()
        seen[list(range(position - places, first - 1, -places))[:columns]] = True
        in_runs, read = (slots.reshape(-1, 16).any(axis=1) for slots in (runs, seen))
        order = [*np.flatnonzero(in_runs), *np.flatnonzero(read & ~in_runs)[::-1]]
        streams = port_streams(case["k_past"][0, 0], case["v_past"][0, 0], np.array(order, int))
        each = max(len(stream) for stream in streams)
        q = memory(case["q"].reshape(-1), CONFIG.max_group * CONFIG.max_head_dim)
        k, v = (memory(case[key].reshape(-1), CONFIG.max_head_dim) for key in ("k", "v"))
        exponent = memory(case["exponent"].reshape(-1), CONFIG.max_group)
        y, busy = unset(np.float32, CONFIG.max_group * CONFIG.max_head_dim), np.zeros(1, np.int64)
        scale = np.float32(case["v_scale"].item())
        assert top("attention", *filled(streams), q, k, v, exponent, scale, *sizes, y, busy) >= each, name
        assert_same_bits(y[: group * head_dim], case["y"].reshape(-1))
        assert (y[group * head_dim :].view(np.uint8) == 0x5A).all()


def port_streams(k: np.ndarray, v: np.ndarray, read: np.ndarray) -> list[np.ndarray]:
    """(beats, 16) of each port: its blocks of K among ``read``, slot by slot, then of V, dimension by dimension."""
    blocks = [read[read % 4 == port] for port in range(4)]
    keys, values = k.reshape(-1, 16, k.shape[1]), v.reshape(-1, 16, v.shape[1]).transpose(0, 2, 1)
    return [np.concatenate([keys[own].reshape(-1, 16), values[own].reshape(-1, 16)]) for own in blocks]


def test_sample(top):
    for case in golden_cases("sample").values():
        ports = [memory(case[key][0], CONFIG.max_codes) for key in ("conditional", "unconditional")]
        guidance, inverse_temperature = (np.float32(case[key].item()) for key in ("guidance", "inverse_temperature"))
        settings = guidance, inverse_temperature, case["top_k"].item(), case["top_p"].item()
        codes = case["logits"].size
        for uniform, chosen in zip(case["uniforms"].tolist(), case["codes"].tolist(), strict=True):
            logits = unset(np.float32, CONFIG.max_codes)
            assert top("sample", *ports, *settings, uniform, codes, logits) == chosen
            assert_same_bits(logits[:codes], case["logits"][0])
