"""The phases of a build: in order, once each, and again where what they took has changed."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest
from fake_vendor import FakeVendor

from fastcar.overlays.flow import layout, phases
from fastcar.overlays.flow.errors import PhaseError
from fastcar.overlays.flow.layout import Build
from fastcar.overlays.flow.phases import PHASES
from fastcar.overlays.flow.plan import Choice, plan
from fastcar.overlays.flow.run import check_folder, run
from fastcar.overlays.flow.tools import find_tools
from fastcar.toolkit.errors import UsageError

ORDER = [phase.name for phase in PHASES if phase.tool != "python"]
AFTER_CSYNTH = ORDER[ORDER.index("csynth") :]


def go(build: Build, choice: Choice | None = None) -> list[dict]:
    return run(build, find_tools(), choice or Choice(), lambda stage, done, total: None)


def failed(build: Build) -> PhaseError:
    with pytest.raises(PhaseError) as caught:
        go(build)
    return caught.value


def test_every_phase_once_and_in_order(build: Build, vendor: FakeVendor) -> None:
    record = go(build)
    assert vendor.journal == ORDER == [
        "csim", "csynth", "cosim", "export_ip", "block_design", "synthesis", "implementation", "timing", "bitstream",
        "device_tree",
    ]  # fmt: skip
    assert [step["phase"] for step in record] == ["configure", *ORDER, "collect"]
    assert all(step["ran"] for step in record)
    assert {step["version"] for step in record} == {"2022.2", None}
    for phase in PHASES:
        assert all((build.folder / name).stat().st_size for name in phase.makes)
        stamp = json.loads(build.stamp(phase.name).read_text())
        assert set(stamp["outputs"]) == set(phase.makes)


def test_what_is_done_is_not_done_again(build: Build, vendor: FakeVendor) -> None:
    go(build)
    vendor.forget()
    record = go(build)
    assert vendor.journal == []
    assert [step["phase"] for step in record if step["ran"]] == ["configure", "collect"]
    assert [step.phase.name for step in plan(build, find_tools(), Choice()) if step.runs] == ["configure", "collect"]


@pytest.mark.parametrize(
    ("phase", "how"),
    [*((phase, "crash") for phase in ORDER), ("csim", "fail"), ("timing", "fail"), ("cosim", "nothing")],
)
def test_goes_on_with_the_phase_that_did_not_end(build: Build, vendor: FakeVendor, phase: str, how: str) -> None:
    vendor.behave(phase, how)
    error = failed(build)
    assert error.subject == phase
    assert vendor.journal == ORDER[: ORDER.index(phase) + 1]
    assert not build.stamp(phase).exists()
    vendor.behave(phase, None)
    vendor.forget()
    go(build)
    assert vendor.journal == ORDER[ORDER.index(phase) :]


def test_failure_tells_the_tools_own_error(build: Build, vendor: FakeVendor) -> None:
    vendor.behave("synthesis", "fail")
    error = failed(build)
    assert "vivado ended with exit code 1: ERROR: [Fake 17-69] synthesis: not enough luck" in error.found
    assert str(build.log("synthesis")) in error.fix
    assert error.exit_code == 1
    assert error.dump.splitlines()[-1] == "INFO: exiting"
    vendor.behave("synthesis", "crash")
    assert "signal 11" in failed(build).found


def test_no_file_of_an_earlier_run_passes_for_a_result(build: Build, vendor: FakeVendor) -> None:
    go(build)
    vendor.behave("implementation", "nothing")
    with pytest.raises(PhaseError, match="did not make vivado/post_route.dcp") as caught:
        go(build, Choice(start="implementation"))
    assert "reports/timing_summary_routed.rpt" in caught.value.found


def test_an_artifact_that_was_altered_is_made_again(build: Build, vendor: FakeVendor) -> None:
    go(build)
    vendor.forget()
    build.artifact(".bit").write_bytes(b"damaged")
    go(build)
    assert vendor.journal == ["bitstream"]
    vendor.forget()
    (build.folder / "reports/csynth.xml").unlink()
    go(build)
    assert vendor.journal == ["csynth"]  # made anew as it was, so that what follows from it holds


def test_a_new_result_is_built_upon(build: Build, vendor: FakeVendor) -> None:
    go(build)
    vendor.forget()
    netlist = vendor.root / "products/synthesis/vivado/post_synth.dcp"
    netlist.write_text("another netlist")
    go(build, Choice(only="synthesis"))
    assert vendor.journal == ["synthesis"]
    go(build)
    assert vendor.journal == ORDER[ORDER.index("synthesis") :]


@pytest.mark.parametrize(
    ("script", "again"),
    [("timing", ["timing"]), ("csim", ["csim"]), ("cosim", ["cosim"]), ("csynth", AFTER_CSYNTH), ("arguments", ORDER)],
)
def test_a_changed_script_runs_again(
    build: Build, vendor: FakeVendor, scripts: Path, script: str, again: list[str]
) -> None:
    go(build)
    vendor.forget()
    (scripts / f"{script}.tcl").write_text("# changed\n")
    go(build)
    assert vendor.journal == again


def test_changed_sources_run_again(build: Build, vendor: FakeVendor, tmp_path: Path, monkeypatch) -> None:
    kernel = tmp_path / "kernel.h"
    kernel.write_text("// one")
    monkeypatch.setattr(phases, "kernel_files", lambda: [kernel])
    go(build)
    vendor.forget()
    kernel.write_text("// another")
    go(build)
    assert vendor.journal == ORDER


def test_another_version_of_the_tools_builds_anew(build: Build, vendor: FakeVendor) -> None:
    go(build)
    vendor.forget()
    vendor.install("2024.2", "vitis-run")
    go(build)
    assert vendor.journal == ORDER


def test_jobs_make_no_other_result(build: Build, vendor: FakeVendor) -> None:
    go(build)
    vendor.forget()
    go(Build(build.engine, build.board, build.folder, jobs=8))
    assert vendor.journal == []


def test_a_build_that_was_moved_holds(build: Build, vendor: FakeVendor, tmp_path: Path) -> None:
    go(build)
    vendor.forget()
    shutil.move(build.folder, tmp_path / "moved")
    go(Build(build.engine, build.board, tmp_path / "moved"))
    assert vendor.journal == []


def test_from_and_only(build: Build, vendor: FakeVendor) -> None:
    with pytest.raises(UsageError, match="not done before it: synthesis"):
        go(build, Choice(only="implementation"))
    assert vendor.journal == []
    go(build)
    vendor.forget()
    go(build, Choice(start="timing"))
    assert vendor.journal == ["timing", "bitstream", "device_tree"]
    vendor.forget()
    assert [step["phase"] for step in go(build, Choice(only="csim"))] == ["csim"]
    assert vendor.journal == ["csim"]


@pytest.mark.parametrize("choice", [Choice(start="route"), Choice(only="route")])
def test_phases_that_do_not_exist(build: Build, vendor: FakeVendor, choice: Choice) -> None:
    with pytest.raises(UsageError, match="'route' is no phase") as caught:
        go(build, choice)
    assert "implementation" in caught.value.expected


def test_one_of_from_and_only(build: Build, vendor: FakeVendor) -> None:
    with pytest.raises(UsageError, match="beside --from"):
        go(build, Choice("csim", "csynth"))


def test_results_hold_where_the_tools_are_not(build: Build, vendor: FakeVendor) -> None:
    go(build)
    vendor.forget()
    shutil.rmtree(vendor.bin)
    record = go(build)
    assert [step["phase"] for step in record if step["ran"]] == ["configure", "collect"]


def test_a_folder_of_another_build_is_refused(build: Build, vendor: FakeVendor) -> None:
    check_folder(build)
    go(build)
    check_folder(build)
    config = build.engine.config.model_copy(update={"groups": 1})
    other = Build(build.engine.model_copy(update={"config": config}), build.board, build.folder)
    with pytest.raises(UsageError, match=f"holds build {build.engine.config.build_id:08x}"):
        check_folder(other)
    (build.config / "engine.json").write_text("{")
    with pytest.raises(UsageError, match="config/engine.json cannot be read"):
        check_folder(build)


def test_a_folder_of_something_else_is_refused(build: Build) -> None:
    build.folder.mkdir()
    (build.folder / "thesis.tex").write_text("")
    with pytest.raises(UsageError, match="holds thesis.tex"):
        check_folder(build)


@pytest.mark.parametrize("name", ["two words", "naïve", "a$b", "x;y"])
def test_paths_the_tools_stumble_over_are_refused(build: Build, tmp_path: Path, name: str) -> None:
    with pytest.raises(UsageError, match="Choose another --out"):
        Build(build.engine, build.board, tmp_path / name)


def test_what_is_refused_forgets_nothing(build: Build, vendor: FakeVendor) -> None:
    with pytest.raises(UsageError, match="not done before it: csynth"):
        go(build, Choice(only="cosim"))
    assert not build.folder.exists()
    go(build)
    build.stamp("timing").unlink()
    with pytest.raises(UsageError, match="not done before it: timing"):
        go(build, Choice(only="bitstream"))
    vendor.forget()
    go(build)
    assert vendor.journal == ["timing"]


@pytest.mark.parametrize("change", [{"outputs": 3}, {"outputs": {"a": []}}, {"seconds": "long"}, {"version": 2}])
def test_a_damaged_stamp_counts_as_none(build: Build, vendor: FakeVendor, change: dict) -> None:
    go(build)
    vendor.forget()
    file = build.stamp("timing")
    file.write_text(json.dumps(json.loads(file.read_text()) | change))
    go(build)
    assert vendor.journal == ["timing"]


def test_the_link_to_the_project_is_no_strange_file_and_kept_up(
    build: Build, vendor: FakeVendor, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An end within the first phase leaves it alone in the folder; with --only it is right as well."""
    odd = tmp_path / "an odd folder"
    odd.symlink_to(layout.ROOT.resolve(), target_is_directory=True)
    monkeypatch.setattr(layout, "ROOT", odd)
    build.folder.mkdir()
    build.link_package()
    check_folder(build)
    go(build)
    build.package.unlink()
    build.package.symlink_to(tmp_path / "moved away")
    go(build, Choice(only="csim"))
    assert build.package.resolve() == odd.resolve()


def test_one_build_at_a_time(build: Build, vendor: FakeVendor) -> None:
    import fcntl

    build.folder.mkdir()
    with (build.folder / "lock").open("w") as lock:
        lock.write("4711\n")
        lock.flush()
        fcntl.flock(lock, fcntl.LOCK_EX)
        with pytest.raises(UsageError, match=r"another build is at work there \(process 4711\)"):
            go(build)
    go(build)


def test_a_project_that_was_removed_is_synthesized_anew(build: Build, vendor: FakeVendor) -> None:
    """Co-simulation and export work in it."""
    go(build)
    vendor.forget()
    shutil.rmtree(build.folder / "hls")
    go(build)
    assert vendor.journal == ["csynth"]  # with the result that it had


def test_what_each_phase_builds_on() -> None:
    """A gate that is left out would let a bitstream of an engine pass that failed it."""
    built_on = {phase.name: set(phase.needs) | set(phase.gates) for phase in PHASES}
    reached: dict[str, set[str]] = {}
    for phase in PHASES:
        own = built_on[phase.name]
        assert own <= set(reached), f"{phase.name} before what it builds on"
        reached[phase.name] = own.union(*(reached[name] for name in own)) if own else set()
    before = {"configure", "csim", "csynth", "cosim", "export_ip"}
    before |= {"block_design", "synthesis", "implementation", "timing"}
    assert reached["bitstream"] == before
    assert "csim" in built_on["csynth"] and "cosim" in built_on["export_ip"] and "timing" in built_on["bitstream"]
    assert reached["collect"] >= before | {"bitstream"}
