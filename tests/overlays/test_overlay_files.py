"""The two files of an overlay: what is written is read again, by PYNQ too; what is damaged is refused by its name."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from fastcar.overlays import engine_names, load_engine
from fastcar.overlays.bitfile import read_bitfile, write_emulated_bitfile
from fastcar.overlays.design import ENGINE, INTERRUPTS, RESET, VLNV, block_design, build_id_of_name
from fastcar.overlays.hwh import handoff_text, read_handoff
from fastcar.toolkit.board.check import check_overlay
from fastcar.toolkit.errors import OverlayError
from fastcar.toolkit.program.register_map import ADDRESS_RANGE, POINTERS, engine_registers
from fastcar.toolkit.program.registers import CONTROL, REPORT


@pytest.fixture
def bit(tmp_path: Path) -> Path:
    path = tmp_path / "fastcar.bit"
    design = block_design(load_engine("kv260"))
    write_emulated_bitfile(path, design)
    path.with_suffix(".hwh").write_text(handoff_text(design))
    return path


@pytest.mark.parametrize("name", engine_names())
def test_every_engine_has_a_design(name: str, tmp_path: Path) -> None:
    engine = load_engine(name)
    design = block_design(engine)
    path = tmp_path / "x.hwh"
    path.write_text(handoff_text(design))
    handoff = read_handoff(path)
    assert build_id_of_name(handoff.design) == engine.config.build_id
    assert handoff.engines == (ENGINE,)
    assert handoff.clock_mhz == pytest.approx(engine.config.clock_mhz, rel=0.05)
    assert handoff.registers == {register.name: register.offset for register in engine_registers()}


def test_pynq_reads_the_same(bit: Path) -> None:
    from pynqmetadata.frontends import Metadata

    try:
        from pynqmetadata.views.runtime import RuntimeMetadataParser
    except ImportError:
        from pynq.metadata.runtime_metadata_parser import RuntimeMetadataParser
    parser = RuntimeMetadataParser(Metadata(input=bit.with_suffix(".hwh")))
    design = block_design(load_engine("kv260"))
    for instance in (ENGINE, INTERRUPTS, RESET):
        found = parser.ip_dict[instance]
        assert (found["phys_addr"], found["addr_range"]) == design.slaves[instance] and found["type"] == VLNV[instance]
    registers = parser.ip_dict[ENGINE]["registers"]
    assert {name: one["address_offset"] for name, one in registers.items()} == read_handoff(
        bit.with_suffix(".hwh")
    ).registers
    assert f"{ENGINE}/interrupt" in parser.interrupt_pins


def test_register_map_by_hand() -> None:
    """UG1399: an argument's words, then one more; pointers have two words."""
    offsets = {register.name: register.offset for register in engine_registers()}
    assert (offsets["CTRL"], offsets["GIER"], offsets["IP_IER"], offsets["IP_ISR"]) == (0, 4, 8, 12)
    assert (offsets["program_1"], offsets["program_2"], offsets["weights0_1"]) == (0x10, 0x14, 0x1C)
    assert offsets["control_1"] == 0x10 + 12 * len(POINTERS)
    assert offsets["report_1"] == offsets["control_1"] + 4 * len(CONTROL.words) + 4
    assert offsets["report_ctrl"] == offsets["report_1"] + 4 * len(REPORT.words) < ADDRESS_RANGE
    assert len(set(offsets.values())) == len(offsets)


def test_header_of_a_bitstream(bit: Path) -> None:
    found, design = read_bitfile(bit), block_design(load_engine("kv260"))
    assert found.design == f"{design.name}_wrapper" and found.part == design.board.device.part and found.emulated
    real = bit.read_bytes()
    head = real[: real.index(b"no configuration")]
    bit.write_bytes(head[:-4] + (64).to_bytes(4, "big") + b"\xff" * 64)
    assert not read_bitfile(bit).emulated


@pytest.mark.parametrize(
    "damage",
    [
        lambda data: b"",
        lambda data: data[:5],
        lambda data: data[:40],
        lambda data: data[:-1],
        lambda data: data + b"\0",
        lambda data: data.replace(b"fastcar", b"f\xffstcar", 1),
        lambda data: b"\x7fELF" + data,
    ],
)
def test_damaged_bitstream(bit: Path, damage) -> None:
    bit.write_bytes(damage(bit.read_bytes()))
    with pytest.raises(OverlayError) as caught:
        read_bitfile(bit)
    assert caught.value.subject == str(bit) and "\n" not in str(caught.value)


@pytest.mark.parametrize("text", ["", "<a", "<EDKSYSTEM/>", "<html><SYSTEMINFO/></html>", "\0"])
def test_damaged_handoff(bit: Path, text: str) -> None:
    path = bit.with_suffix(".hwh")
    path.write_text(text)
    with pytest.raises(OverlayError) as caught:
        read_handoff(path)
    assert caught.value.subject == str(path) and "\n" not in str(caught.value)


def test_missing_files(tmp_path: Path) -> None:
    for read in (read_bitfile, read_handoff):
        with pytest.raises(OverlayError, match="no such file"):
            read(tmp_path / "none")


@pytest.mark.parametrize("name", ["design_1", "fastcar_", "fastcar_12", "fastcar_zzzzzzzz", "xfastcar_12345678"])
def test_names_without_a_build(name: str) -> None:
    assert build_id_of_name(name) is None
    assert build_id_of_name("fastcar_1234abcd_wrapper") == 0x1234ABCD


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("UTF-8", "rot13"),
        ("UTF-8", "utf-7"),
        ('NAME="ADDRESS_OFFSET" VALUE="', 'NAME="ADDRESS_OFFSET" VALUE="x'),
        ('ACT_FREQMHZ" VALUE="', 'ACT_FREQMHZ" VALUE="fast '),
        ("fastcar:hls", "&vendor;:hls"),
    ],
)
def test_handoff_with_values_that_are_none(bit: Path, old: str, new: str) -> None:
    path = bit.with_suffix(".hwh")
    path.write_text(path.read_text().replace(old, new))
    with pytest.raises(OverlayError) as caught:
        read_handoff(path)
    assert caught.value.subject == str(path) and "\n" not in str(caught.value)


@pytest.mark.parametrize("offset", ["99999999999", "-4", "18", "0"])
def test_a_register_that_is_not_where_one_can_be(bit: Path, offset: str) -> None:
    """18 is between two words, 0 another register's."""
    path = bit.with_suffix(".hwh")
    head, name, tail = path.read_text().partition('"report_3"')
    tail = tail.replace('NAME="ADDRESS_OFFSET" VALUE="', f'NAME="ADDRESS_OFFSET" VALUE="{offset}" OLD="', 1)
    path.write_text(head + name + tail)
    with pytest.raises(OverlayError, match="report_3|report_ctrl") as caught:
        check_overlay(bit, load_engine("kv260").config)
    assert caught.value.subject == str(path)


@pytest.mark.parametrize("suffix", [".bit", ".hwh"])
def test_what_is_no_file_is_not_waited_for(bit: Path, suffix: str) -> None:
    path = bit.with_suffix(suffix)
    for make, found in ((os.mkfifo, "no regular file"), (os.mkdir, "is a directory")):
        path.unlink()
        make(path)
        with pytest.raises(OverlayError, match=found):
            check_overlay(bit, load_engine("kv260").config)


def test_a_handoff_of_more_than_memory_is_not_read(bit: Path) -> None:
    os.truncate(bit.with_suffix(".hwh"), 1 << 40)
    with pytest.raises(OverlayError, match="has 1099511627776 bytes"):
        check_overlay(bit, load_engine("kv260").config)
