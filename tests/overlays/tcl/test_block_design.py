"""The block design as Vivado is told to build it, put together again from the commands: the driver's addresses, the
emulated handoff's ports, and nothing that is not connected."""

from __future__ import annotations

import re
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from xml.etree import ElementTree

import pytest
from tcl_runs import Flow, Outcome

import fastcar
from fastcar.overlays import engine_names, load_engine
from fastcar.overlays.connections import connections
from fastcar.overlays.design import ENGINE, INTERRUPTS, PROCESSOR, RESET, VLNV, block_design
from fastcar.overlays.design_tcl import design_tcl
from fastcar.overlays.hwh import CLOCK, handoff_text
from fastcar.toolkit.errors import UsageError
from fastcar.toolkit.program.register_map import ADDRESS_RANGE, engine_registers

Finished = tuple[Flow, dict[str, Outcome]]

ENGINE_CPP = Path(fastcar.__file__).parent / "hls/engine/engine.cpp"
# The lower window of M_AXI_HPM0_FPD, 256 MB (UG1085, system address map).
HPM0 = 0xA000_0000, 0xB000_0000
# What must be connected of each core, beside its interfaces.
INPUTS = {
    "fastcar_engine": ("ap_clk", "ap_rst_n"),
    "axi_intc": ("s_axi_aclk", "s_axi_aresetn", "intr"),
    "axi_gpio": ("s_axi_aclk", "s_axi_aresetn"),
    "smartconnect": ("aclk", "aresetn"),
    "proc_sys_reset": ("slowest_sync_clk", "ext_reset_in"),
    "zynq_ultra_ps_e": ("pl_ps_irq0", "maxihpm0_fpd_aclk"),
}


class Recorded:
    """Cells, connections and addresses of the recorded commands."""

    def __init__(self, outcome: Outcome) -> None:
        path = lambda word: word.removeprefix("missing:").removeprefix("/")
        self.cells = {words[-1]: words[3] for words in outcome.of("create_bd_cell")}
        self.interfaces = [tuple(map(path, words)) for words in outcome.of("connect_bd_intf_net")]
        self.nets = [tuple(map(path, words)) for words in outcome.of("connect_bd_net")]
        self.addresses = {}
        for words in outcome.of("assign_bd_address"):
            options = dict(zip(words[:6:2], words[1:6:2], strict=True))
            key = path(options["-target_address_space"]), path(words[6])
            self.addresses[key] = int(options["-offset"], 16), int(options["-range"], 16)
        self.excluded = [(path(words[1]), path(words[2])) for words in outcome.of("exclude_bd_addr_seg")]
        self.parameters = {
            path(words[2]): dict(zip(words[1].split()[::2], words[1].split()[1::2], strict=True))
            for words in outcome.of("set_property")
            if words[0] == "-dict"
        }

    def behind(self, master: str) -> str:
        """The processor's port that an interface of the engine leads to, through a SmartConnect or directly."""
        slave = dict(self.interfaces)[f"{ENGINE}/{master}"]
        if slave.startswith(f"{PROCESSOR}/"):
            return slave.split("/")[1]
        return dict(self.interfaces)[f"{slave.split('/')[0]}/M00_AXI"].split("/")[1]


@pytest.fixture(scope="module")
def recorded(finished: Finished) -> Recorded:
    return Recorded(finished[1]["block_design"])


@pytest.fixture(scope="module")
def handoff(finished: Finished) -> ElementTree.Element:
    return ElementTree.fromstring(handoff_text(finished[0].design).encode())


def module(handoff: ElementTree.Element, instance: str) -> ElementTree.Element:
    (found,) = handoff.findall(f"./MODULES/MODULE[@INSTANCE='{instance}']")
    return found


def test_the_drivers_addresses(recorded: Recorded, handoff: ElementTree.Element) -> None:
    """Of the recorded commands, of the handoff, and those the driver's registers need."""
    vivado = {
        segment.split("/")[0]: address
        for (space, segment), address in recorded.addresses.items()
        if "Data" == space[-4:]
    }
    emulated = {}
    for part in module(handoff, PROCESSOR).iter("MEMRANGE"):
        base, high = int(part.get("BASEVALUE"), 16), int(part.get("HIGHVALUE"), 16)
        emulated[part.get("INSTANCE")] = base, high - base + 1
    assert vivado == emulated and set(vivado) == {ENGINE, INTERRUPTS, RESET}
    assert vivado[ENGINE][1] == ADDRESS_RANGE > max(register.offset for register in engine_registers())
    bases = sorted(vivado.values())
    assert all(base + size <= following for (base, size), (following, _) in pairwise(bases))
    assert all(base % size == 0 for base, size in bases)
    low, high = HPM0
    assert all(low <= base and base + size <= high for base, size in bases), "the processor sees nothing elsewhere"


def test_the_engines_memory(recorded: Recorded, handoff: ElementTree.Element) -> None:
    vivado = {
        space.removeprefix(f"{ENGINE}/Data_"): (
            recorded.behind(space.split("Data_")[1]),
            segment.split("/")[-1],
            *address,
        )
        for (space, segment), address in recorded.addresses.items()
        if space.startswith(ENGINE)
    }
    emulated = {}
    for part in module(handoff, ENGINE).iter("MEMRANGE"):
        base, high = int(part.get("BASEVALUE"), 16), int(part.get("HIGHVALUE"), 16)
        place = part.get("SLAVEBUSINTERFACE"), part.get("ADDRESSBLOCK"), base, high - base + 1
        emulated[part.get("MASTERBUSINTERFACE")] = place
    assert vivado == emulated
    bundles = set(re.findall(r"mode=m_axi .*?bundle=(\w+)", ENGINE_CPP.read_text()))
    assert {f"m_axi_{bundle}" for bundle in bundles} == set(vivado)


def test_each_read_port_has_a_port_of_the_memory_controller(finished: Finished, recorded: Recorded) -> None:
    board = finished[0].design.board.ports
    reads = [recorded.behind(f"m_axi_read{port}") for port in range(4)]
    assert reads == list(board.names) and len(set(board.controller_ports)) == 4
    assert all(f"{PROCESSOR}/{port}" in dict(recorded.interfaces).values() for port in reads)
    assert {recorded.behind("m_axi_program"), recorded.behind("m_axi_cache")} == {"S_AXI_HPC1_FPD"}


def test_a_master_sees_what_is_assigned_and_nothing_else(recorded: Recorded) -> None:
    excluded = {
        space: {segment for other, segment in recorded.excluded if other == space} for space, _ in recorded.excluded
    }
    for space, segment in recorded.addresses:
        if space.startswith(ENGINE):
            port = segment.rpartition("_DDR_LOW")[0]
            assert excluded[space] == {f"{port}_{part}" for part in ("DDR_HIGH", "LPS_OCM", "QSPI")}
    assert set(excluded) == {space for space, _ in recorded.addresses if space.startswith(ENGINE)}


def test_nothing_dangles(recorded: Recorded) -> None:
    driven = [pin for _, *pins in recorded.nets for pin in pins]
    ends = [end for pair in recorded.interfaces for end in pair]
    assert len(set(driven)) == len(driven) and len(set(ends)) == len(ends)
    for instance, vlnv in recorded.cells.items():
        kind = vlnv.split(":")[2]
        assert all(f"{instance}/{pin}" in driven for pin in INPUTS[kind]), instance
        if kind == "smartconnect":
            sizes = recorded.parameters[instance]
            slots = [f"S{i:02}_AXI" for i in range(int(sizes["CONFIG.NUM_SI"]))]
            slots += [f"M{i:02}_AXI" for i in range(int(sizes["CONFIG.NUM_MI"]))]
            assert {end for end in ends if end.startswith(f"{instance}/")} == {f"{instance}/{slot}" for slot in slots}
    assert {pin.split("/")[0] for net in recorded.nets for pin in net} == set(recorded.cells)


def test_ports_in_use_are_enabled_clocked_and_wide_enough(finished: Finished, recorded: Recorded) -> None:
    processor, clock = recorded.parameters[PROCESSOR], {net[0]: net[1:] for net in recorded.nets}
    used = {slave.split("/")[1] for _, slave in recorded.interfaces if slave.startswith(f"{PROCESSOR}/")}
    numbers = {"HPC0": 0, "HPC1": 1, "HP0": 2, "HP1": 3, "HP2": 4, "HP3": 5}
    for name, number in numbers.items():
        enabled = processor[f"CONFIG.PSU__USE__S_AXI_GP{number}"] == "1"
        assert enabled == (f"S_AXI_{name}_FPD" in used)
        if enabled:
            assert processor[f"CONFIG.PSU__SAXIGP{number}__DATA_WIDTH"] == "128"
            assert f"{PROCESSOR}/saxi{name.lower()}_fpd_aclk" in clock[f"{PROCESSOR}/pl_clk0"]
    assert float(processor["CONFIG.PSU__CRL_APB__PL0_REF_CTRL__FREQMHZ"]) == finished[0].design.clock_mhz


def test_the_gpio_bit_resets_the_engine_alone(recorded: Recorded) -> None:
    drivers = {pin: net[0] for net in recorded.nets for pin in net[1:]}
    core = drivers[f"{ENGINE}/ap_rst_n"].split("/")[0]
    assert drivers[f"{core}/aux_reset_in"] == f"{RESET}/gpio_io_o"
    assert [net for net in recorded.nets if net[0].startswith(f"{core}/")] == [
        (f"{core}/peripheral_aresetn", f"{ENGINE}/ap_rst_n")
    ]
    assert recorded.parameters[core] == {"CONFIG.C_AUX_RESET_HIGH": "0"}  # 0 holds, as the driver writes it
    assert recorded.parameters[RESET]["CONFIG.C_DOUT_DEFAULT"] == "0x00000001"


def test_the_interrupt_and_the_clock_are_the_handoffs(recorded: Recorded, handoff: ElementTree.Element) -> None:
    nets = set(recorded.nets)
    for part in handoff.iter("MODULE"):
        for port in part.iter("PORT"):
            (other,) = port.iter("CONNECTION")
            ends = f"{part.get('INSTANCE')}/{port.get('NAME')}", f"{other.get('INSTANCE')}/{other.get('PORT')}"
            assert (ends if port.get("DIR") == "O" else ends[::-1]) in nets
    wanted = recorded.parameters[PROCESSOR]["CONFIG.PSU__CRL_APB__PL0_REF_CTRL__FREQMHZ"]
    (reached,) = (part.get("VALUE") for part in handoff.iter("PARAMETER") if part.get("NAME") == CLOCK)
    assert float(reached) == pytest.approx(float(wanted), rel=0.05)


def test_cores_are_the_handoffs_of_whatever_version_the_catalog_has(recorded: Recorded) -> None:
    for instance, vlnv in VLNV.items():
        assert recorded.cells[instance] == (vlnv if instance == ENGINE else vlnv.rpartition(":")[0])


def test_the_preset_comes_before_the_parameters(finished: Finished) -> None:
    names = [words[0] for words in finished[1]["block_design"].commands if "-dict" in words or words[0][:5] == "apply"]
    assert names[0] == "apply_bd_automation" and set(names[1:]) == {"set_property"}
    (words,) = finished[1]["block_design"].of("apply_bd_automation")
    assert words[:4] == ("-rule", "xilinx.com:bd_rule:zynq_ultra_ps_e", "-config", 'apply_board_preset "1"')


def test_bitstream_and_design_carry_the_build_id(finished: Finished) -> None:
    flow, outcomes = finished
    constraints = (flow.folder / "vivado/bitstream.xdc").read_text().splitlines()
    build = flow.design.build_id
    assert f"set_property BITSTREAM.CONFIG.USR_ACCESS 0x{build:08X} [current_design]" in constraints
    assert outcomes["block_design"].of("create_bd_design") == [(f"fastcar_{build:08x}",)]
    assert ("top", f"fastcar_{build:08x}_wrapper", "") in outcomes["block_design"].of("set_property")


@pytest.mark.parametrize("name", engine_names())
def test_every_engine_has_a_design(name: str, copy: Callable[[], Flow]) -> None:
    flow = copy()
    flow.design = block_design(load_engine(name))
    (flow.folder / "config/design.tcl").write_text(design_tcl(flow.design))
    done = flow.run("block_design", BOARD_PARTS=flow.design.board.device.board_part)
    assert done.code == 0, done.error
    assert Recorded(done).addresses == {
        (one.space, one.segment): (one.base, one.size) for one in connections(flow.design).segments
    }


def test_a_board_with_fewer_ports_shares_them(finished: Finished) -> None:
    design = finished[0].design
    ports = design.board.ports.model_copy(
        update={"names": ("S_AXI_HP0_FPD", "S_AXI_HPC1_FPD"), "controller_ports": (3, 2)}
    )
    few = type(design)(design.board.model_copy(update={"ports": ports}), "few", 1, 300)
    whole = connections(few)
    assert whole.parameters["memory_hp0"] == {"NUM_SI": "2", "NUM_MI": "1"}
    assert whole.parameters["memory_hpc1"] == {"NUM_SI": "4", "NUM_MI": "1"}
    assert whole.ports == ("S_AXI_HPC1_FPD", "S_AXI_HP0_FPD")
    assert design_tcl(few).count("DDR_LOW") == 6


def test_ports_of_another_family_are_refused(finished: Finished) -> None:
    design = finished[0].design
    ports = design.board.ports.model_copy(update={"names": ("HBM_00",), "controller_ports": (0,)})
    with pytest.raises(UsageError, match="port HBM_00"):
        connections(type(design)(design.board.model_copy(update={"ports": ports}), "hbm", 1, 300))


@pytest.mark.parametrize("clock", ["3 00", "a{b", "$x", ""])
def test_no_value_breaks_the_dictionary(clock: str, finished: Finished, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(VLNV, RESET, f"xilinx.com:ip:axi_gpio{clock}:2.0" if clock else "")
    if clock == "3 00":
        assert "engine_reset {xilinx.com:ip:axi_gpio3 00}" in design_tcl(finished[0].design)
    else:
        with pytest.raises(ValueError, match="in a block design"):
            design_tcl(finished[0].design)
