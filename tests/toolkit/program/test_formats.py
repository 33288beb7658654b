"""Records, registers and memory layout: packed and read back, and the same on chip."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest
from small_engine import small_engine

from fastcar.hls import build
from fastcar.hls.codegen import config_header, records_header
from fastcar.toolkit.config import BackboneConfig, DepthConfig, FrameLayout
from fastcar.toolkit.program import descriptors, memory, registers
from fastcar.toolkit.program.memory import StateLayout
from fastcar.toolkit.program.words import Record, Word
from fastcar.toolkit.settings import POLICIES

RECORD = Record("Sample", "", (Word("a", ""), Word("b", "", "i32"), Word("c", "", "f32")), 5)


def test_records_are_packed_and_read_back() -> None:
    packed = RECORD.pack(a=4294967295, b=-2, c=0.1)
    assert packed.dtype == np.uint32 and packed.tolist() == [4294967295, 4294967294, 0x3DCCCCCD, 0, 0]
    assert RECORD.unpack(packed) == {"a": 4294967295, "b": -2, "c": float(np.float32(0.1))}


@pytest.mark.parametrize(
    "values, message", [({"a": -1}, "a -1; expected 0"), ({"a": 1 << 32}, "a"), ({"b": 1 << 31}, "b")]
)
def test_values_outside_a_word(values: dict[str, int], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        RECORD.pack(**{"a": 0, "b": 0, "c": 0.0, **values})


def test_missing_and_unknown_fields() -> None:
    with pytest.raises(TypeError, match=r"missing \['c'\], unknown \['d'\]"):
        RECORD.pack(a=0, b=0, d=1)


def test_descriptors_are_64_bytes_and_registers_unique() -> None:
    assert descriptors.MODEL.length == descriptors.NODE.length == 16 == descriptors.WORDS
    for record in (descriptors.MODEL, descriptors.DEPTH, descriptors.NODE, registers.CONTROL, registers.REPORT):
        names = [word.name for word in record.words]
        assert len(names) == len(set(names)) <= record.length
    assert sorted(registers.STATUS) == list(range(len(registers.STATUS)))
    assert set(registers.POLICY_CODES) == set(POLICIES)


def test_opcodes_of_a_layer_are_consecutive() -> None:
    """The engine counts on from NORM_ATTENTION and NORM_FINAL to know what must come next."""
    deep = (*descriptors.DEPTH_INPUTS, *descriptors.DEPTH_LAYER, *descriptors.DEPTH_ENDING)
    for run in ((*descriptors.LAYER, *descriptors.ENDING), deep):
        order = [code.value for code in run]
        assert order == list(range(order[0], order[0] + len(order)))


def test_constants_are_the_kernels() -> None:
    text = (build.HERE / "include/fastcar/types.h").read_text()
    constant = lambda name: int(re.search(rf"constexpr int {name} = (\d+);", text)[1])
    assert constant("PORTS") == memory.PORTS
    assert constant("BEAT_BYTES") == memory.BEAT_BYTES
    assert constant("BLOCK_SLOTS") == memory.BLOCK_SLOTS


def test_headers_hold_every_word_and_the_build() -> None:
    text = records_header()
    for record in (descriptors.MODEL, descriptors.DEPTH, descriptors.NODE, registers.CONTROL, registers.REPORT):
        body = re.search(rf"struct {record.name} {{(.*?)}};", text, re.DOTALL)[1]
        fields = re.findall(r"^    (?:uint32_t|int32_t|float) (\w+);", body, re.MULTILINE)
        assert fields == [word.name for word in record.words]
    assert f"0x{small_engine().build_id:08X}u" in config_header(small_engine())


def test_build_id_is_of_what_must_agree(monkeypatch: pytest.MonkeyPatch) -> None:
    before = small_engine().build_id
    assert small_engine(name="other").build_id == before
    assert small_engine(max_slots=1024).build_id != before
    monkeypatch.setattr(registers, "POLICY_CODES", {**registers.POLICY_CODES, "all": 3})
    assert small_engine().build_id != before


def test_state_layout_has_no_overlap() -> None:
    config = BackboneConfig(hidden=48, layers=3, heads=6, kv_heads=2, head_dim=16, mlp=56, vocab=44)
    frames = FrameLayout(prompt_length=3, frames=6, grid=(4, 5), code_offset=7, codes=37)
    layout = StateLayout.for_clip(config, frames, 4, 2, 123, 20, logits=True)
    assert layout.slots == 128
    caches = 3 * 4 * 2 * 2 * 128 * 16 // 16  # layers, rows, K and V, heads, slots of one beat
    replayed = 20 * 3 * 4 * (48 // 8 + 1)
    assert (layout.cache_beats, layout.replay_beats) == (caches, replayed)
    assert layout.thresholds == caches + replayed and layout.paddings == layout.thresholds + 2
    assert layout.input == layout.paddings + 1
    assert layout.output == layout.input + 20 * (1 + 1)
    assert layout.total_beats == layout.output + 20 * (1 + 1 + 6 + 2 * 10)


def test_state_layout_of_a_depth_transformer() -> None:
    """Its caches, of one block of slots a port, behind the replayed outputs; three words a row in the records."""
    config = BackboneConfig(hidden=48, layers=3, heads=6, kv_heads=2, head_dim=16, mlp=56, vocab=7)
    frames = FrameLayout(prompt_length=3, frames=6, grid=(4, 5), code_offset=7, codes=37)
    depth = DepthConfig(hidden=64, layers=2, heads=4, mlp=96, codes_per_position=3, code_dim=48)
    plain, layout = (StateLayout.for_clip(config, frames, 4, 2, 123, 20, True, depth=deep) for deep in (None, depth))
    assert layout.thresholds == plain.thresholds + 2 * 4 * 2 * 4 * 64 * 16 // 16  # layers, rows, K and V, heads, slots
    assert layout.input_parts == {"tokens": 3, "uniforms": 2}
    assert layout.output_parts == plain.output_parts | {"codes": 2, "logits": 2 * 3 * 10}


def test_every_header_is_guarded_and_named_by_its_file() -> None:
    headers = [path for path in build.kernel_files() if path.suffix == ".h"]
    assert len(headers) > 20
    for path in headers:
        assert re.search(r"#ifndef (FASTCAR_\w+_H)\n#define \1\n", Path(path).read_text()), path


@pytest.mark.parametrize(
    "changes, message",
    [
        ({"vector": 3}, "vector 3 must divide 16"),
        ({"max_heads": 256, "max_head_dim": 256}, "max_heads \\* max_head_dim above 32768"),
        ({"max_kv_heads": 16}, "max_kv_heads 16 above max_heads 8"),
        ({"max_heads": 64, "max_kv_heads": 64, "max_head_dim": 128}, "above 8176"),
    ],
)
def test_engines_that_cannot_be_built(changes: dict[str, int], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        small_engine(**changes)
