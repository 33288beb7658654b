"""Whatever the host hands over: an error code, nothing written, and the engine as usable as before."""

from __future__ import annotations

import re
import shutil
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest
from bad_programs import CODES, DEEP_ENGINE, ENGINE, OFFSET, PROMPT, Start, make_start

from fastcar.hls.build import HERE
from fastcar.hls.fuzz import FuzzError, build_fuzzer, run_fuzzer, started, write_case
from fastcar.hls.library import EngineLibrary
from fastcar.toolkit.config import DepthConfig
from fastcar.toolkit.program.descriptors import DEPTH as DEPTH_HEADER
from fastcar.toolkit.program.descriptors import MODEL, MODEL_DEPTH, NODE, PRE_ROPE, TAS_HEADS_CODES, Opcode
from fastcar.toolkit.program.engine import MAX_PROJECTOR, EngineConfig
from fastcar.toolkit.program.registers import FLAG_TEACHER, GIVEN, STATUS, merge_words
from fastcar.toolkit.settings import MAX_COLUMNS

DEPTH = DepthConfig(
    hidden=32, layers=2, heads=2, mlp=48, codes_per_position=3, code_dim=16, projector_layers=2
)  # on DEEP_ENGINE
SHARED = DepthConfig(hidden=32, layers=1, heads=1, mlp=64, codes_per_position=2, code_dim=32, shared_codebook=True)


@pytest.fixture(scope="module")
def library() -> EngineLibrary:
    return EngineLibrary(ENGINE)


@pytest.fixture(scope="module")
def deep_library() -> EngineLibrary:
    return EngineLibrary(DEEP_ENGINE)


@pytest.fixture(scope="module")
def valid() -> Start:
    """Of 8 bits, two rows; not to be modified."""
    return make_start(8, frames=10, position=39)


@pytest.fixture(scope="module")
def traced() -> Start:
    """The same, of one step, whose trace ends where the state does."""
    return make_start(8, frames=10, position=39, steps=1, traced=True)


@pytest.fixture(scope="module")
def deep() -> Start:
    """The same as ``valid`` with a depth transformer, all steps of which read codes."""
    return make_start(8, frames=10, position=39, depth=DEPTH)


@pytest.fixture(scope="module")
def deep_traced() -> Start:
    return make_start(8, frames=10, position=39, steps=1, traced=True, depth=DEPTH)


@pytest.fixture(scope="module")
def cases(valid: Start, traced: Start, tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    folder = tmp_path_factory.mktemp("cases")
    attention = {"sinks": 5, "window": 9, "columns": 3}
    four_bits = make_start(4, frames=16, position=20, steps=1, clips=3, guided=False, policy=1, **attention)
    padded = make_start(8, frames=10, position=30, padding=2, sinks=1, window=20)
    padded.paddings()[:] = 0, 2
    return _written(folder, {"int8": valid, "int4": four_bits, "traced": traced, "padded": padded})


@pytest.fixture(scope="module")
def deep_cases(deep: Start, deep_traced: Start, tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    """Of ``DEEP_ENGINE``; it runs programs without a depth transformer, too."""
    folder = tmp_path_factory.mktemp("deep-cases")
    several = {"steps": 2, "clips": 3, "guided": False, "policy": 1, "sinks": 5, "window": 9, "columns": 3}
    four_bits = make_start(4, frames=16, position=20, depth=SHARED, texts=1, **several)
    given = make_start(8, frames=10, position=4, depth=DEPTH, padding=2)
    given.paddings()[:] = 2, 1
    given.uniforms()[:] = GIVEN | np.arange(DEPTH.codes_per_position)
    plain = make_start(8, frames=10, position=39, engine=DEEP_ENGINE)
    starts = {"int8": deep, "int4": four_bits, "traced": deep_traced, "given": given, "plain": plain}
    return _written(folder, starts)


def _written(folder: Path, starts: dict[str, Start]) -> list[Path]:
    return [
        write_case(folder / f"{name}.case", start.program, start.weights, start.state, start.registers)
        for name, start in starts.items()
    ]


def run(library: EngineLibrary, start: Start) -> tuple[str, dict[str, int], np.ndarray]:
    """Name of the status, report and the state afterwards."""
    state = start.state.copy()
    report = library.run(start.program, start.weights, state, start.registers)
    return STATUS[report["status"]][0], report, state


def changed(start: Start, **control: float) -> Start:
    return Start(start.program.copy(), start.weights, start.state.copy(), start.control | control, start.memory)


def model(field: str, value: int) -> Callable[[Start], Start]:
    def change(start: Start) -> Start:
        start = changed(start)
        start.program[0, [word.name for word in MODEL.words].index(field)] = value
        return start

    return change


def node(opcode: Opcode, field: str, value: int | Callable[[Start], int]) -> Callable[[Start], Start]:
    """The first descriptor of that opcode."""

    def change(start: Start) -> Start:
        start = changed(start)
        row = int(np.flatnonzero(start.program[:, 0] == opcode)[0])
        start.program[row, [word.name for word in NODE.words].index(field)] = value(start) if callable(value) else value
        return start

    return change


def depth(field: str, value: int) -> Callable[[Start], Start]:
    def change(start: Start) -> Start:
        start = changed(start)
        start.program[1, [word.name for word in DEPTH_HEADER.words].index(field)] = value
        return start

    return change


def control(**values: int) -> Callable[[Start], Start]:
    return lambda start: changed(start, **values)


def truncated_weights(start: Start) -> Start:
    """Buffer and register one beat short: the last descriptor's weights end beyond them."""
    start = changed(start, weight_beats=len(start.weights) - 1)
    start.weights = start.weights[:-1].copy()
    return start


def only_tables(start: Start) -> Start:
    """The weights end within the embedding."""
    start = changed(start, weight_beats=2)
    start.weights = start.weights[:2].copy()
    return start


def truncated_state(start: Start) -> Start:
    start = changed(start, state_beats=len(start.state) - 1)
    start.state = start.state[:-1].copy()
    return start


def without(start: Start, descriptors: int) -> Start:
    start = changed(start, descriptors=len(start.program) - descriptors)
    start.program = start.program[: len(start.program) - descriptors].copy()
    return start


def swapped(start: Start) -> Start:
    start = changed(start)
    start.program[[3, 4]] = start.program[[4, 3]]
    return start


def without_layer(start: Start) -> Start:
    """The header of a model of one layer, the descriptors of two."""
    return model("layers", 1)(start)


def end(start: Start) -> int:
    return len(start.weights)


BAD: dict[str, tuple[Callable[[Start], Start], str]] = {
    "another build": (model("build_id", ENGINE.build_id ^ 1), "BAD_BUILD"),
    "no program": (model("opcode", 0), "BAD_PROGRAM"),
    "no descriptors": (control(descriptors=0), "BAD_PROGRAM"),
    "only the header": (control(descriptors=1), "BAD_PROGRAM"),
    "as many descriptors as a word can say": (control(descriptors=(1 << 32) - 1), "BAD_PROGRAM"),
    "the last descriptor missing": (lambda start: without(start, 1), "BAD_PROGRAM"),
    "descriptors of another layer count": (without_layer, "BAD_PROGRAM"),
    "descriptors out of order": (swapped, "BAD_PROGRAM"),
    "an unknown opcode": (node(Opcode.SAMPLE, "opcode", 99), "BAD_PROGRAM"),
    "a layer twice": (node(Opcode.HEADS, "layer", 1), "BAD_PROGRAM"),
    "an unknown flag": (node(Opcode.LINEAR_QKV, "flags", 2), "BAD_PROGRAM"),
    "beats of another shape": (node(Opcode.LINEAR_QKV, "beats", 1), "BAD_PROGRAM"),
    "no layers": (model("layers", 0), "BAD_MODEL"),
    "more layers than configured": (model("layers", ENGINE.max_layers + 1), "BAD_MODEL"),
    "wider than configured": (model("hidden", ENGINE.max_hidden + 16), "BAD_MODEL"),
    "more heads than configured": (model("heads", ENGINE.max_heads + 1), "BAD_MODEL"),
    "no key/value heads": (model("kv_heads", 0), "BAD_MODEL"),
    "key/value heads that do not divide": (model("kv_heads", ENGINE.max_kv_heads + 1), "BAD_MODEL"),
    "a head that fills no beat": (model("head_dim", 24), "BAD_MODEL"),
    "an MLP wider than configured": (model("mlp", ENGINE.max_mlp + 8), "BAD_MODEL"),
    "more codes than configured": (model("codes", ENGINE.max_codes + 1), "BAD_MODEL"),
    "codes beyond the vocabulary": (model("code_offset", OFFSET + 1), "BAD_MODEL"),
    "no places": (model("places", 0), "BAD_MODEL"),
    "an unknown mode": (model("opcode", Opcode.MODEL_HEADER | PRE_ROPE << 4), "BAD_MODEL"),
    "the largest and the least head": (
        model("opcode", Opcode.MODEL_HEADER | sum(TAS_HEADS_CODES.values())),
        "BAD_MODEL",
    ),
    "truncated weights": (truncated_weights, "BAD_WEIGHTS"),
    "hardly any weights": (only_tables, "BAD_WEIGHTS"),
    "a descriptor behind the weights": (node(Opcode.NORM_FINAL, "address", end), "BAD_WEIGHTS"),
    "a descriptor at the end of memory": (node(Opcode.LINEAR_DOWN, "address", (1 << 32) - 1), "BAD_WEIGHTS"),
    "an embedding behind the weights": (model("embedding", (1 << 32) - 8), "BAD_WEIGHTS"),
    "rotary tables behind the weights": (model("rotary", (1 << 32) - 8), "BAD_WEIGHTS"),
    "no rows": (control(rows=0, clips=0), "BAD_ROWS"),
    "more rows than configured": (control(rows=ENGINE.rows + 1, clips=ENGINE.rows + 1), "BAD_ROWS"),
    "clips that do not match the rows": (control(rows=3, clips=2), "BAD_ROWS"),
    "clips whose double wraps to the rows": (control(clips=(1 << 31) + 1, steps=0), "BAD_ROWS"),
    "a step beyond the caches": (control(position=63), "BAD_CONTEXT"),
    "a step beyond the rotary tables": (control(position=42), "BAD_CONTEXT"),
    "a position that wraps": (control(position=(1 << 32) - 1), "BAD_CONTEXT"),
    "steps that wrap": (control(position=1, steps=(1 << 32) - 1), "BAD_CONTEXT"),
    "more slots than configured": (control(slots=ENGINE.max_slots + 64), "BAD_CONTEXT"),
    "slots in no whole blocks": (control(slots=72), "BAD_CONTEXT"),
    "a truncated state": (truncated_state, "BAD_STATE"),
    "caches of more slots than the state holds": (control(slots=128), "BAD_STATE"),
    "records in the caches": (control(output=0), "BAD_STATE"),
    "thresholds at the end of memory": (control(thresholds=(1 << 32) - 1), "BAD_STATE"),
    "inputs at the end of memory": (control(input=(1 << 32) - 1), "BAD_STATE"),
    "an unknown setting": (control(flags=32), "BAD_SETTINGS"),
    "a trace of what is not predicted": (control(flags=8 | 16, steps=1), "BAD_SETTINGS"),
    "an unknown policy": (control(policy=3), "BAD_SETTINGS"),
    "no age": (control(max_age=0), "BAD_SETTINGS"),
    "nothing to sample from": (control(top_k=0), "BAD_SETTINGS"),
    "more than all of the probability": (control(top_p=65537), "BAD_SETTINGS"),
    "sinks beyond a signed word": (control(sinks=1 << 31), "BAD_SETTINGS"),
    "a window beyond a signed word": (control(window=1 << 31), "BAD_SETTINGS"),
    "more columns than there is room for": (control(window=1, columns=MAX_COLUMNS + 1), "BAD_SETTINGS"),
    "columns that are a sign": (control(window=1, columns=(1 << 32) - 1), "BAD_SETTINGS"),
    "as much padding as there is prompt": (control(padding=PROMPT), "BAD_SETTINGS"),
    "padding that is a sign": (control(padding=(1 << 32) - 1), "BAD_SETTINGS"),
    "more steps that read tokens than there are": (control(texts=3), "BAD_SETTINGS"),
    "paddings behind the state": (lambda s: changed(s, thresholds=len(s.state) - 1), "BAD_STATE"),
    "a depth transformer for an engine without": (model("opcode", Opcode.MODEL_HEADER | MODEL_DEPTH), "BAD_MODEL"),
}


def trace_moved(beats: int) -> Callable[[Start], Start]:
    return lambda start: changed(start, trace=start.memory.trace + beats)


BAD_TRACES: dict[str, tuple[Callable[[Start], Start], str]] = {
    "a trace of two steps": (control(steps=2, position=38), "BAD_SETTINGS"),
    "a trace of no step": (control(steps=0), "BAD_SETTINGS"),
    "a trace in the caches": (control(trace=0), "BAD_STATE"),
    "a trace that begins in the replayed outputs": (lambda s: changed(s, trace=s.memory.thresholds - 1), "BAD_STATE"),
    "a trace that ends behind the state": (trace_moved(1), "BAD_STATE"),
    "a trace in a truncated state": (truncated_state, "BAD_STATE"),
    "a trace at the end of memory": (control(trace=(1 << 32) - 1), "BAD_STATE"),
}


CAPACITY = DEEP_ENGINE.depth
BAD_DEPTHS: dict[str, tuple[Callable[[Start], Start], str]] = {
    "no header of its own": (depth("opcode", Opcode.EMBED), "BAD_PROGRAM"),
    "a depth transformer that its model does not have": (model("opcode", Opcode.MODEL_HEADER), "BAD_MODEL"),
    "no layers of its own": (depth("layers", 0), "BAD_MODEL"),
    "more layers of its own than configured": (depth("layers", CAPACITY.layers + 1), "BAD_MODEL"),
    "another width than its heads'": (depth("hidden", DEPTH.hidden + 16), "BAD_MODEL"),
    "more heads of its own than key/value heads": (depth("heads", DEEP_ENGINE.max_kv_heads + 1), "BAD_MODEL"),
    "heads of its own that fill no beats": (depth("head_dim", 8), "BAD_MODEL"),
    "an MLP of its own that fills no beats": (depth("mlp", DEPTH.mlp + 8), "BAD_MODEL"),
    "no residual codes": (depth("codes_per_position", 0), "BAD_MODEL"),
    "more residual codes than configured": (depth("codes_per_position", CAPACITY.codes_per_position + 1), "BAD_MODEL"),
    "wider codes than configured": (depth("code_dim", CAPACITY.code_dim + 16), "BAD_MODEL"),
    "no codebook": (depth("books", 0), "BAD_MODEL"),
    "a codebook too few": (depth("books", 2), "BAD_MODEL"),
    "no projector": (depth("projector", 0), "BAD_MODEL"),
    "another projector than its nodes'": (depth("projector", 1), "BAD_PROGRAM"),
    "a projector of too many layers": (depth("projector", MAX_PROJECTOR + 1), "BAD_MODEL"),
    "codebooks behind the weights": (depth("codebook", (1 << 32) - 8), "BAD_WEIGHTS"),
    "positions behind the weights": (depth("positions", (1 << 32) - 8), "BAD_WEIGHTS"),
    "a layer of another": (node(Opcode.DEPTH_HEADS, "layer", 1), "BAD_PROGRAM"),
    "the projector's second layer first": (node(Opcode.PROJECT, "layer", 1), "BAD_PROGRAM"),
    "beats of another shape of its own": (node(Opcode.DEPTH_CODES, "beats", 1), "BAD_PROGRAM"),
    "a head instead": (node(Opcode.DEPTH_LOGITS, "opcode", Opcode.LINEAR_LOGITS), "BAD_PROGRAM"),
    "a depth node behind the weights": (node(Opcode.DEPTH_FC2, "address", end), "BAD_WEIGHTS"),
    "a state without its caches": (lambda s: changed(s, output=s.memory.thresholds - 1), "BAD_STATE"),
}


@pytest.mark.parametrize("name", [*BAD, *BAD_TRACES])
def test_refused_with_its_code(library: EngineLibrary, valid: Start, traced: Start, name: str) -> None:
    change, expected = (BAD | BAD_TRACES)[name]
    check_refusal(library, traced if name in BAD_TRACES else valid, change, expected)


@pytest.mark.parametrize("name", [*BAD_DEPTHS, *BAD_TRACES])
def test_depth_transformer_refused(deep_library: EngineLibrary, deep: Start, deep_traced: Start, name: str) -> None:
    change, expected = (BAD_DEPTHS | BAD_TRACES)[name]
    check_refusal(deep_library, deep_traced if name in BAD_TRACES else deep, change, expected)


def check_refusal(library: EngineLibrary, valid: Start, change: Callable[[Start], Start], expected: str) -> None:
    status, first, first_state = run(library, valid)
    assert status == "DONE" and first["steps_done"] == valid.control["steps"]

    bad = change(valid)
    status, report, state = run(library, bad)
    assert status == expected
    assert report["build_id"] == library.config.build_id
    assert not any(value for name, value in report.items() if name not in ("status", "build_id")), "nothing ran"
    assert np.array_equal(state, bad.state)

    status, again, state = run(library, valid)
    assert (status, again) == ("DONE", first)
    assert np.array_equal(state, first_state)


@pytest.mark.parametrize("token", [OFFSET + CODES, 1 << 31, (1 << 32) - 1])
def test_token_outside_the_vocabulary(library: EngineLibrary, valid: Start, token: int) -> None:
    """Known only when it is read: the step runs with entry 0 in its place, and the report says so."""
    bad, zero = changed(valid), changed(valid)
    bad.tokens()[1], zero.tokens()[1] = token, 0
    before = run(library, valid)
    status, report, state = run(library, bad)
    assert status == "BAD_TOKEN"
    status, expected, state_of_zero = run(library, zero)
    assert status == "DONE" and report == expected | {"status": report["status"]}
    records = slice(valid.memory.input, valid.memory.output)
    assert np.array_equal(np.delete(state, records, 0), np.delete(state_of_zero, records, 0))
    after = run(library, valid)
    assert after[:2] == before[:2] and np.array_equal(after[2], before[2])


@pytest.mark.parametrize("code", [CODES, 1 << 30, (1 << 32) - 1])
@pytest.mark.parametrize("given", [False, True])
def test_code_outside_the_codebook(deep_library: EngineLibrary, deep: Start, code: int, given: bool) -> None:
    """Read from the record, or given in place of a choice: entry 0 in its place, and the report says so."""
    words = Start.uniforms if given else Start.tokens
    mark = GIVEN if given else 0
    bad, zero = changed(deep), changed(deep)
    words(bad)[-1, 1], words(zero)[-1, 1] = mark | code, mark
    before = run(deep_library, deep)
    status, report, state = run(deep_library, bad)
    assert status == "BAD_TOKEN"
    status, expected, state_of_zero = run(deep_library, zero)
    assert status == "DONE" and report == expected | {"status": report["status"]}
    records = slice(deep.memory.input, deep.memory.output)
    assert np.array_equal(np.delete(state, records, 0), np.delete(state_of_zero, records, 0))
    after = run(deep_library, deep)
    assert after[:2] == before[:2] and np.array_equal(after[2], before[2])


@pytest.mark.parametrize("padding", [3, 1 << 31, (1 << 32) - 1])
def test_more_padding_than_the_settings_say(library: EngineLibrary, valid: Start, padding: int) -> None:
    """Of a row: as much as the settings say is taken, and it makes a difference."""
    bad, most, none = (changed(valid, padding=2) for _ in range(3))
    bad.paddings()[1], most.paddings()[1] = padding, 2
    (status, _, state), (_, _, expected), (_, _, without) = (run(library, start) for start in (bad, most, none))
    assert status == "DONE"
    outputs = slice(valid.memory.output, valid.memory.trace)
    assert np.array_equal(state[outputs], expected[outputs])
    assert not np.array_equal(state[outputs], without[outputs])


def test_the_last_code_or_the_token_of_the_record(library: EngineLibrary, valid: Start) -> None:
    """The second step reads its own last code; given that as a token, or told to read tokens alone, it is the same."""
    status, report, state = run(library, valid)
    steps, rows = valid.control["steps"], valid.memory.rows
    parts = valid.memory.output_parts
    assert status == "DONE" and steps == 2
    code = int(state[valid.memory.output].view(np.uint32)[0])
    outputs = slice(valid.memory.output, valid.memory.output + 2 * sum(parts.values()))
    for flags in (0, FLAG_TEACHER):
        given = changed(valid, flags=valid.control["flags"] | flags)
        given.tokens(1)[:] = OFFSET + code
        again = run(library, given)
        assert again[:2] == ("DONE", report) and np.array_equal(again[2][outputs], state[outputs])
    other = changed(valid)
    other.tokens(1)[:rows] = OFFSET + (code + 1) % CODES
    assert not np.array_equal(run(library, other)[2][outputs], state[outputs])
    taught = changed(valid, flags=valid.control["flags"] | FLAG_TEACHER)
    assert run(library, taught)[0] == "BAD_TOKEN", "no code of its own where every token is given"


@pytest.mark.slow
@pytest.mark.parametrize("mutants", [25_000, pytest.param(100_000, marks=pytest.mark.hard)])
@pytest.mark.parametrize("engine", [ENGINE, DEEP_ENGINE], ids=["head", "depth"])
def test_fuzz(cases: list[Path], deep_cases: list[Path], tmp_path: Path, engine: EngineConfig, mutants: int) -> None:
    fuzzer, cases = build_fuzzer(engine, tmp_path), cases if engine is ENGINE else deep_cases
    with ThreadPoolExecutor() as pool:  # one core each
        counts = list(pool.map(lambda seed: run_fuzzer(fuzzer, cases, mutants // 2, seed), (1, 2)))
    total = {name: sum(count[name] for count in counts) for name in counts[0]}
    assert total["mutants"] == mutants
    assert total["no_room"] < 0.01 * mutants
    assert started(total) > 0.3
    assert all(total[name] > mutants // 1000 for name, _ in STATUS.values()), "a status that no mutant reaches"
    assert total["rows_replayed"] > total["passes_skipped"] > mutants // 100


KNOCKED_OUT = """
inline bool knocked_out(int check) {
    static const int which = std::getenv("FASTCAR_KNOCKED_OUT") ? std::atoi(std::getenv("FASTCAR_KNOCKED_OUT")) : -1;
    return check == which;
}
"""


def number_checks(header: Path) -> list[str]:
    """Puts a switch behind every refusal of ``validate.h``; their conditions."""
    conditions: list[str] = []

    def switched(match: re.Match) -> str:
        conditions.append(match[2])
        return f"{match[1]}if (!knocked_out({len(conditions) - 1}) && ({match[2]})) return {match[3]};"

    text = re.sub(r"( +)if \((.*)\) return (BAD_\w+);", switched, header.read_text())
    conditions.append("inside")
    text, found = re.subn(r"return inside \?", f"return inside || knocked_out({len(conditions) - 1}) ?", text)
    assert found == 1
    text = text.replace('#include "config.h"', '#include <cstdlib>\n\n#include "config.h"', 1)
    header.write_text(text.replace("namespace fastcar {\n", "namespace fastcar {\n" + KNOCKED_OUT, 1))
    return conditions


@pytest.mark.hard
def test_every_check_is_needed(
    cases: list[Path], deep_cases: list[Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without any one of the checks the fuzzer finds a mutant that goes wrong or should not have run, on an engine with
    depth transformers or on one without."""
    copy_kernels(tmp_path)
    conditions = number_checks(tmp_path / "include/fastcar/validate.h")
    fuzzers = []
    for engine, own in ((DEEP_ENGINE, deep_cases), (ENGINE, cases)):
        (tmp_path / engine.name).mkdir()
        fuzzers.append((build_fuzzer(engine, tmp_path / engine.name, tmp_path), own))
    assert len(conditions) >= 20
    missed = []
    for index, condition in enumerate(conditions):
        if condition.startswith("node.inputs"):
            continue  # tells a wrong program; the engine itself reads neither
        monkeypatch.setenv("FASTCAR_KNOCKED_OUT", str(index))
        if not any(finds_a_fault(*fuzzer) for fuzzer in fuzzers):
            missed.append(condition)
    assert not missed


def copy_kernels(folder: Path) -> None:
    for part in ("include", "engine", "sim"):
        shutil.copytree(HERE / part, folder / part)


def finds_a_fault(fuzzer: Path, cases: list[Path]) -> bool:
    try:
        run_fuzzer(fuzzer, cases, 10_000)
    except FuzzError:
        return True
    return False


@pytest.mark.hard
@pytest.mark.parametrize(
    ("header", "before", "after"),
    [
        ("executor_depth.h", "if (code < model_.codes) return code;", "return code;"),
        ("executor_layers.h", "if (token >= model_.vocab) {", "if (false) {"),
        ("executor.h", "padding < control_.padding ? padding : control_.padding", "padding"),
        ("validate.h", "ceil_div(model.layers, 2) + ceil_div(control.rows, BEAT_WORDS);", "ceil_div(model.layers, 2);"),
        ("validate.h", "cached += deep.end() - deep.first;", ""),
        ("validate.h", "(uint64_t)depth.books * model.codes", "(uint64_t)model.codes"),
    ],
)
def test_what_memory_says_is_bounded(
    deep_cases: list[Path], tmp_path: Path, header: str, before: str, after: str
) -> None:
    """Codes, tokens and paddings come from memory, where no check has seen them; sizes count all that is read."""
    copy_kernels(tmp_path)
    path = tmp_path / "include/fastcar" / header
    text = path.read_text()
    assert text.count(before) == 1
    path.write_text(text.replace(before, after))
    assert finds_a_fault(build_fuzzer(DEEP_ENGINE, tmp_path, tmp_path), deep_cases)


@pytest.mark.parametrize("grid", [(8, 8), (7, 9), (1, 17)], ids=["one port", "all ports", "one in a block"])
@pytest.mark.parametrize("attention", [(0, 1), (70, 100)], ids=str)
def test_the_most_columns_run_through_the_shallowest_streams(grid: tuple[int, int], attention: tuple[int, int]) -> None:
    """More commands than a port's stream holds, for one port or all: no process waits for another without end."""
    engine = ENGINE.model_copy(update={"max_slots": 4288, "weight_fifo_beats": 64})
    places, (sinks, window) = grid[0] * grid[1], attention
    settings = {"sinks": sinks, "window": window, "columns": MAX_COLUMNS}
    position = 65 * places + 5
    start = make_start(8, frames=66, position=position, steps=1, grid=grid, engine=engine, **settings)
    status, report, _ = run(EngineLibrary(engine), start)
    assert status == "DONE"

    slots = np.arange(position)
    seen = (slots < sinks) | (slots >= position - window)
    seen[[position - column * places for column in range(1, MAX_COLUMNS + 1)]] = True
    blocks = np.flatnonzero(np.logical_or.reduceat(seen, np.arange(0, position, 16)))
    beats = np.bincount(blocks % 4, minlength=4) * start.memory.config.head_dim
    each = start.memory.config.layers * start.memory.rows * 2  # K and V of one head
    assert [merge_words(report)[f"cache_beats{port}"] for port in range(4)] == (each * beats).tolist()
