"""What is counted without arithmetic, and by hand, and by the C simulation."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from packed_bundle import packed_copy
from random_models import GUIDED, INDEPENDENT, config, depth_config, random_depth_model
from small_engine import small_engine

from fastcar import Bundle, generate
from fastcar.export.overlay.compile import pack_model
from fastcar.export.overlay.program import ProgramPlan
from fastcar.hls.counting import ANY_ENGINE, Memory, OperationCounts, counter_of_any_engine
from fastcar.hls.library import EngineLibrary
from fastcar.overlays import Engine
from fastcar.toolkit.backends.csim import CSimBackend
from fastcar.toolkit.backends.protocol import next_read
from fastcar.toolkit.planner.clip import Replay, clip_counts
from fastcar.toolkit.planner.program import shape_program
from fastcar.toolkit.planner.published import SPARE
from fastcar.toolkit.planner.shapes import ModelShape, load_shape
from fastcar.toolkit.planner.step import Rows, StepCounter, total, whole
from fastcar.toolkit.program.descriptors import Opcode
from fastcar.toolkit.program.engine import DepthCapacity
from fastcar.toolkit.program.registers import CONTROL, merge_words
from fastcar.toolkit.settings import FULL_ATTENTION, AttentionSettings, ReplaySettings

FAST = ANY_ENGINE.model_copy(update=SPARE)
TIMES = {"cycles", "stalls", "build_id", "status"}


def step_counter(name: str = "llama-1.1b", recipe: str = "w4a8", engine=FAST, rows: int = 2) -> StepCounter:
    program = shape_program(load_shape(name), recipe)
    return StepCounter(counter_of_any_engine(), program, Rows(rows, max(1, rows // 2)), engine, Memory(3.4))


@pytest.mark.parametrize("reassign", [True, False], ids=["scheduling", "fixed"])
@pytest.mark.parametrize("kind", ["dense", "replay", "window", "columns"])
def test_counters_are_those_of_the_simulation(bundle_w4a8: Path, tmp_path: Path, kind: str, reassign: bool) -> None:
    """Of an engine that was never compiled with its arithmetic here, over the starts of a clip."""
    engine = Engine(board="kv260", config=small_engine())
    bundle = Bundle.open(packed_copy(bundle_w4a8, tmp_path / "packed", engine))
    manifest = bundle.manifest
    library = EngineLibrary(engine.config)
    backend = CSimBackend(library, bundle.packed(), manifest.config, manifest.frame_layout, reassign)
    replay = ReplaySettings() if kind == "dense" else ReplaySettings.uniform(0.0, manifest.config.layers)
    attention = {"window": AttentionSettings(4, 20), "columns": AttentionSettings(4, 9, 2)}.get(kind, FULL_ATTENTION)
    clip = generate(bundle, "left turn", frames=2, replay=replay, attention=attention, backend=backend)
    assert clip.replay.any() == (kind != "dense")

    int4 = {name: linear.bit_width == 4 for name, linear in bundle.model()[0].linears()}
    plan = ProgramPlan(manifest.config, manifest.frame_layout, int4, ANY_ENGINE, manifest.tas_query)
    counter, sums = counter_of_any_engine(), {}
    for start in backend.starts:
        found = counter.count(plan.program(), CONTROL.pack(**start.control), start.replays, engine.config, Memory(3.4))
        assert found.report["status"] == 0
        for name, value in merge_words(found.report).items():
            sums[name] = sums.get(name, 0) + value
    simulated = backend.counters()
    compared = set(simulated) & set(sums) - TIMES
    assert len(compared) >= 12
    assert {name: simulated[name] for name in compared} == {name: sums[name] for name in compared}

    layers, layout = manifest.config.layers, manifest.frame_layout.model_copy(update={"frames": 2})
    step = StepCounter(counter, plan, Rows(2, 1), engine.config, Memory(3.4), attention)
    drawn = Replay(float(clip.replay[1:].mean()), "independent")
    planned = clip_counts(step, layout, layers, 2, drawn)["replay+drs" if reassign else "replay"]
    # Sampled, with decisions of its own; and the clip is so short that each start's own cycles show.
    assert planned.cycles_per_clip == pytest.approx(sums["cycles"], rel=0.1)


@pytest.fixture(scope="module")
def deep_library() -> EngineLibrary:
    capacity = DepthCapacity(layers=3, codes_per_position=4, code_dim=64)
    return EngineLibrary(small_engine(max_kv_heads=8, depth=capacity))


@pytest.mark.parametrize("reassign", [True, False], ids=["scheduling", "fixed"])
@pytest.mark.parametrize(
    ("bits", "changes"),
    [
        (8, {}),
        (4, {"codes_per_position": 4, "shared_codebook": True, "projector_layers": 1, "layers": 1}),
        (4, {"codes_per_position": 1, "layers": 3}),
    ],
    ids=["3 codes", "4 codes, shared", "1 code"],
)
def test_a_depth_transformer_is_counted_as_simulated(
    deep_library: EngineLibrary, bits: int, changes: dict[str, object], reassign: bool
) -> None:
    """Every beat and every clock of the groups, from shape and decisions alone: prompt, first frame and the others."""
    depth = depth_config(hidden=64, heads=4, mlp=160, code_dim=48, **changes)
    sizes = config(hidden=96, heads=6, kv_heads=2, head_dim=16, mlp=64)
    model, engine = random_depth_model(bits, depth=depth, shape=sizes, group=32), deep_library.config
    backend = CSimBackend(deep_library, pack_model(model, engine), model.config, model.layout, reassign, depth)
    layout, rng = model.layout, np.random.default_rng(3)
    backend.start(2, layout.positions, GUIDED, INDEPENDENT, logits=False)
    prompt = rng.integers(0, model.config.vocab, (4, layout.prompt_length))
    backend.prefill(prompt[:, :-1])
    tokens, places = prompt[:, -1], layout.tokens_per_frame
    for frame in range(layout.frames):
        uniforms = rng.integers(0, 1 << 24, (places, 2, depth.codes_per_position))
        record = backend.decode(tokens, uniforms, np.zeros(model.config.layers, np.int64))
        tokens = next_read(layout.frame_start(frame + 1) - 2, record.codes[-1], 4, layout, depth)

    shape = ModelShape(name="small", backbone=model.config, frame_layout=layout, depth=depth)
    program = shape_program(shape, {8: "w8a8", 4: "w4a8"}[bits])
    step = StepCounter(counter_of_any_engine(), program, Rows(4, 2), engine, Memory(3.4))
    sums, beats = OperationCounts(), 0
    for start in backend.starts:
        found = step.counts(int(start.control["position"]), start.replays, reassign)
        sums += whole(found).scaled(len(start.replays))
        beats += -(-model.config.layers // 2) + 1  # thresholds and paddings, once a start
    assert len(backend.starts) == 1 + layout.frames
    simulated = backend.counters()
    assert 0 < simulated["replayed"] < 4 * places * (layout.frames - 1) * model.config.layers
    read = sum(simulated[f"{kind}_beats{port}"] for kind in ("weight", "cache") for port in range(4))
    assert round(sums.read_beats) == read
    assert round(sums.cache_beats) + beats == simulated["cache_reads"] + simulated["cache_writes"]
    assert (round(sums.busy), round(sums.loop)) == (simulated["busy"], simulated["loop"])


def test_bytes_of_a_step_by_hand() -> None:
    """Weights of 4 bits with a multiplier a group of 32 and a scale an output, the head's of 8; keys and values."""
    c = load_shape("llama-1.1b").backbone
    kv = c.kv_heads * c.head_dim
    shapes = [(c.hidden, c.hidden + 2 * kv), (c.hidden, c.hidden), (c.hidden, 2 * c.mlp), (c.mlp, c.hidden)]
    weights = c.layers * sum(inputs * outputs * 17 / 32 + 4 * outputs for inputs, outputs in shapes)
    weights += c.hidden * 1024 + 4 * 1024
    step = step_counter().counts(1000, np.zeros((1, c.layers), np.uint32), True)
    linear = ("attention projections", "MLP", "head")
    assert 16 * sum(step[name].read_beats for name in linear) == pytest.approx(weights, rel=0.002)
    assert 16 * step["attention"].read_beats == pytest.approx(2 * 2 * c.layers * kv * 1000, rel=0.03)


def test_columns_cost_the_blocks_that_hold_them() -> None:
    """Of 256 places: a block of 16 slots a frame, all of them on one port; nothing else changes."""
    shape = load_shape("llama-1.1b")
    c, places, program = shape.backbone, shape.frame_layout.tokens_per_frame, shape_program(shape, "w4a8")
    position = shape.frame_layout.frame_start(4) + 17
    steps = []
    for columns in (0, 3, 64):
        attention = AttentionSettings(0, 32, columns)
        counter = StepCounter(counter_of_any_engine(), program, Rows(2, 1), FAST, Memory(3.4), attention)
        steps.append(counter.counts(position, np.zeros((1, c.layers), np.uint32), True))
    none, three, all_of_them = steps
    block = 2 * 2 * c.layers * c.kv_heads * c.head_dim  # rows, K and V; beats of 16 slots
    assert places % 64 == 0
    assert three["attention"].read_beats - none["attention"].read_beats == 3 * block
    assert all_of_them["attention"].read_beats - none["attention"].read_beats == 4 * block, "no frame before the first"
    assert none["attention"].cycles < three["attention"].cycles < all_of_them["attention"].cycles
    assert {name for name in none if none[name].beats != three[name].beats} == {"attention"}


@pytest.mark.parametrize(("recipe", "weight"), [("w8a8", 1), ("w4a8", 17 / 32)])
def test_a_walk_a_residual_code(recipe: str, weight: float) -> None:
    """The blocks' weights and the classifier's four times, the hidden state's once and the codes' three times."""
    step = step_counter("vila-u-7b", recipe).counts(500, np.zeros((1, 32), np.uint32), True)
    blocks = 6 * 12 * 2560**2 * weight
    words = 2 * (6 * 9 * 2560 + 16384) + 2 * 2560 * (2 * 6 + 1) + 5 * 40 * 6  # scales and biases, norms, heads
    inputs = 4096 * 2560 + 3 * 256 * 2560 + 4 * 2 * 4 * 2560
    cached = 3 * 6 * 2 * 2 * 2560 * 16  # of the codes before, two rows' keys and values: a block of 16 slots
    by_hand = 4 * (blocks + 2560 * 16384 + 4 * words) + inputs + cached
    assert 16 * step["depth transformer"].read_beats == pytest.approx(by_hand, rel=1e-4)
    assert "head" not in step and "sampling" not in step, "they are the depth transformer's"
    assert 16 * step["projections"].beats == (256 + 4096 + 2 * 2 * 4) * 4096, "8 bits in any recipe"
    rotary, records = 2 * 4 * 128, 2 * 4 * 4 + 4 * 4
    assert 16 * step["embedding"].cache_beats == 2 * 4 * 2 * 256 + rotary + records, "four codes of two rows"


def test_steps_of_the_prompt() -> None:
    """They read tokens, which no projector brings to the backbone; but for the last one they predict nothing."""
    counter, dense = step_counter("vila-u-7b", "w8a8"), np.zeros((1, 32), np.uint32)
    start = load_shape("vila-u-7b").frame_layout.prompt_length
    inside, last, first = (counter.counts(start - n, dense, True) for n in (2, 1, 0))
    moved = [{name: one.read_beats for name, one in step.items() if one.read_beats} for step in (inside, last, first)]
    assert set(moved[2]) - set(moved[1]) == {"projections"}
    assert set(moved[1]) - set(moved[0]) == {"depth transformer"}
    rotary, records = 2 * 4 * 128, 2 * 4 * 4 + 4 * 4
    assert 16 * last["embedding"].cache_beats == 2 * 2 * 4096 + rotary + records, "a token of two rows"
    mean = counter.counts(start - 1, np.zeros((2, 32), np.uint32), True)
    assert mean["projections"].read_beats == moved[2]["projections"] / 2


@pytest.mark.parametrize("opcode", [Opcode.ATTENTION, Opcode.LINEAR_DOWN, Opcode.SAMPLE, Opcode.HEADS])
def test_what_is_omitted_is_not_counted(opcode: Opcode) -> None:
    whole = step_counter().counts(1000, np.zeros((1, 22), np.uint32), True)
    program, omitted = shape_program(load_shape("llama-1.1b"), "w4a8"), frozenset({opcode})
    step = StepCounter(counter_of_any_engine(), program, Rows(2, 1), FAST, Memory(3.4), omitted=omitted)
    less = step.counts(1000, np.zeros((1, 22), np.uint32), True)
    gone = [name for name in whole if name not in less or less[name].beats < whole[name].beats]
    assert len(gone) == 1
    assert sum(one.cycles for one in less.values()) < sum(one.cycles for one in whole.values())


def test_more_of_everything_is_never_slower() -> None:
    dense = np.zeros((1, 22), np.uint32)

    def cycles(**changes: int) -> float:
        engine = ANY_ENGINE.model_copy(update={"groups": 2, "vector": 4, "weight_fifo_beats": 2048, **changes})
        return sum(one.cycles for one in step_counter(engine=engine).counts(1000, dense, True).values())

    for name, values in (("groups", (1, 2, 4, 8)), ("vector", (1, 2, 4, 8)), ("weight_fifo_beats", (512, 2048, 8192))):
        times = [cycles(**{name: value}) for value in values]
        assert times == sorted(times, reverse=True) and times[0] > times[-1], name


def test_wider_ports() -> None:
    """Twice the beats a clock at twice the rate: at most twice as fast, and more than a third faster."""
    program = shape_program(load_shape("llama-1.1b"), "w4a8")
    dense = np.zeros((1, 22), np.uint32)
    times = []
    for memory in (Memory(3.4), Memory(6.8), Memory(6.8, 2)):
        step = StepCounter(counter_of_any_engine(), program, Rows(2, 1), FAST, memory)
        times.append(sum(one.cycles for one in step.counts(1000, dense, True).values()))
    assert times[0] > times[1] > times[2]
    assert 1.5 < times[0] / times[2] <= 2


def test_sums_of_classes() -> None:
    one = {"MLP": OperationCounts(1, 2, 3, 4, 5, 6)}
    assert total([(one, 2.0), (one, 0.5)])["MLP"] == OperationCounts(2.5, 5, 7.5, 10, 12.5, 15)


def test_a_clip_is_its_frames() -> None:
    """First frame dense, the others at the ratio; sampled frames stand for the others."""
    shape = load_shape("llama-1.1b")
    layout = shape.frame_layout.model_copy(update={"frames": 3})
    counts = clip_counts(step_counter(), layout, 22, 2, Replay(1.0, "all"))
    drs, dense = counts["replay+drs"], counts["dense"]
    assert drs.frames[0] == dense.frames[0] > 2 * drs.frames[1]
    assert drs.cycles_per_clip == pytest.approx(drs.prompt_cycles + 256 * sum(drs.frames))
    assert drs.cycles_per_step == pytest.approx(np.mean(drs.frames))
    assert counts["replay"].cycles_per_step == pytest.approx(dense.cycles_per_step, rel=0.01)

    lines = layout.model_copy(update={"after_row": (0,), "after_frame": (1,)})
    separated = clip_counts(step_counter(), lines, 22, 2, Replay(1.0, "all"))["dense"]
    assert separated.tokens_per_frame == 16 * 17 + 1, "a forced place costs a whole step"
    assert separated.cycles_per_clip == pytest.approx(separated.prompt_cycles + 273 * sum(separated.frames))
    assert separated.frames[2] > dense.frames[2], "and its keys are read by all that follow"

    long = shape.frame_layout.model_copy(update={"frames": 40, "grid": (4, 8)})
    sampled = clip_counts(step_counter(), long, 22, 2, Replay(0.8, "all"))["replay+drs"]
    assert len(sampled.frames) == 40 and sampled.frames[0] > 1.5 * max(sampled.frames[1:])
    assert sampled.cycles_per_step == pytest.approx(np.mean(sampled.frames), rel=1e-6)
