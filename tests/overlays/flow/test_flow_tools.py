"""Which tools are found and taken, and what is said of those that cannot be used."""

from __future__ import annotations

from pathlib import Path

import pytest
from fake_vendor import tool_script

from fastcar.boards import board_names, load_board
from fastcar.overlays.flow.tools import Toolchain, find_tools
from fastcar.toolkit.errors import UsageError

KV260, ZCU102 = load_board("kv260"), load_board("zcu102")
HLS = "Vitis HLS - High-Level Synthesis from C, C++ and OpenCL v{} (64-bit)"


def tools(folder: Path, **versions: str) -> Toolchain:
    """Tools of these versions on a path of their own: vivado, vitis_hls, vitis_run."""
    folder.mkdir(exist_ok=True)
    for name, version in versions.items():
        line = HLS.format(version) if name == "vitis_hls" else f"{name} v{version} (64-bit)"
        tool_script(folder / name.replace("_run", "-run"), line)
    return find_tools(str(folder))


def refused(found: Toolchain, board=KV260) -> UsageError:
    with pytest.raises(UsageError) as caught:
        found.require(["hls", "vivado"], board)
    return caught.value


@pytest.mark.parametrize("version", ["2022.2", "2023.1", "2023.2", "2024.1"])
def test_up_to_2024_1(tmp_path: Path, version: str) -> None:
    found = tools(tmp_path, vitis_hls=version, vivado=version)
    found.require(["hls", "vivado"], KV260)
    script = Path("logs/csim.tcl")
    assert found.command("hls", script) == [str(tmp_path / "vitis_hls"), "-f", "logs/csim.tcl"]
    vivado = [str(tmp_path / "vivado"), "-mode", "batch", "-nojournal", "-nolog", "-source", "logs/csim.tcl"]
    assert found.command("vivado", script) == vivado
    assert found.version("hls") == found.version("vivado") == version


@pytest.mark.parametrize("version", ["2024.2", "2025.1", "2025.2", "2025.1.1"])
def test_from_2024_2_on(tmp_path: Path, version: str) -> None:
    found = tools(tmp_path, vitis_run=version, vivado=version)
    found.require(["hls", "vivado"], KV260)
    assert found.command("hls", Path("a.tcl")) == [str(tmp_path / "vitis-run"), "--mode", "hls", "--tcl", "a.tcl"]
    assert found.version("hls") == version[:6]


def test_a_release_that_has_both(tmp_path: Path) -> None:
    assert tools(tmp_path, vitis_run="2023.2", vitis_hls="2023.2").command("hls", Path("a"))[1] == "-f"
    assert tools(tmp_path, vitis_run="2024.2", vitis_hls="2024.2").command("hls", Path("a"))[1] == "--mode"


@pytest.mark.parametrize("version", ["2021.1", "2022.1", "2026.1"])
def test_versions_refused(tmp_path: Path, version: str) -> None:
    error = refused(tools(tmp_path, vitis_hls=version, vitis_run=version, vivado=version))
    assert all(f"{tmp_path / tool} is {version}" in error.found for tool in ("vivado", "vitis_hls", "vitis-run"))
    assert "2022.2 to 2025.2" in error.expected


def test_one_version_of_both(tmp_path: Path) -> None:
    error = refused(tools(tmp_path, vitis_hls="2022.2", vivado="2023.1"))
    assert error.found == "vitis_hls 2022.2 and vivado 2023.1"


def test_nothing_there(tmp_path: Path) -> None:
    error = refused(tools(tmp_path))
    assert "vitis-run (2024.2 to 2025.2) or vitis_hls (2022.2 to 2024.1) is not on the path" in error.found
    assert "vivado is not on the path" in error.found
    assert "for xck26-sfvc784-2LV-c the Standard edition of Vivado suffices" in error.fix
    assert "the Enterprise edition" in refused(tools(tmp_path), ZCU102).fix


def test_only_what_is_needed(tmp_path: Path) -> None:
    tools(tmp_path, vivado="2022.2").require(["vivado", "python"], KV260)
    with pytest.raises(UsageError, match="dtc is not on the path") as caught:
        tools(tmp_path, vivado="2022.2").require(["vivado", "dtc"], KV260)
    assert "device-tree-compiler" in caught.value.fix


def test_a_command_of_the_wrong_release(tmp_path: Path) -> None:
    error = refused(tools(tmp_path, vitis_hls="2024.2", vivado="2024.2"))
    assert "is 2024.2, where vitis-run runs scripts and is not on the path" in error.found


@pytest.mark.parametrize("folder", ["Xilinx/Vivado/2023.2/bin", "2025.1/Vivado/bin"])
def test_version_by_its_folder(tmp_path: Path, folder: str) -> None:
    """A tool that says nothing of its version, such as one without its libraries."""
    tool_script(tmp_path / folder / "vivado", "cannot open shared object file")
    year = folder.removeprefix("Xilinx/Vivado/")[:6]
    assert find_tools(str(tmp_path / folder)).version("vivado") == year


def test_no_version_at_all(tmp_path: Path) -> None:
    tool_script(tmp_path / "vivado", "cannot open shared object file")
    assert "does not tell its version" in find_tools(str(tmp_path)).unusable["vivado"]


@pytest.mark.parametrize("name", board_names())
def test_edition_of_every_board(name: str) -> None:
    device = load_board(name).device
    assert device.estimates_only or (device.edition and device.edition_source)
    assert (device.edition == "Enterprise") == (name == "zcu102")
