"""Tasks on a local Ray cluster of two workers."""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest
import tasks_that_die
from cli_runs import run as fastcar_run
from tiny_sweep import Here, same_results, tiny_plan

from fastcar.toolkit.bundle.bundle import Bundle
from fastcar.toolkit.errors import UsageError
from fastcar.toolkit.evaluation.ray_execute import LOCAL, can_start_workers, check_address, run_with_ray
from fastcar.toolkit.evaluation.sweep import run_sweep

ray = pytest.importorskip("ray")
pytestmark = pytest.mark.slow


startable = pytest.mark.skipif(not can_start_workers(), reason="Ray does not quote the path of this Python")


@pytest.fixture(scope="module")
def cluster() -> Iterator[None]:
    """Of two workers, for the tests behind the first; starting one takes longer than they do."""
    ray.init(address="local", num_cpus=2, include_dashboard=False, log_to_driver=False)
    yield
    ray.shutdown()


def run(perform, tasks, processes: int = 2) -> tuple[dict[int, object], list[int]]:
    done: dict[int, object] = {}
    lost: list[int] = []

    def on_done(index: int, result: object) -> None:
        assert index not in done
        done[index] = result

    run_with_ray(perform, tasks, processes, on_done, lambda index, how: lost.append(index))
    return done, lost


def workers_below(parent: int) -> list[int]:
    """Processes that run a task of the cluster that ``parent`` started."""
    parents, names = {}, {}
    for folder in Path("/proc").iterdir():
        if folder.name.isdigit():
            try:
                fields = (folder / "stat").read_text().rpartition(")")[2].split()
                names[int(folder.name)] = (folder / "cmdline").read_bytes().split(b"\0")[0]
                parents[int(folder.name)] = int(fields[1])
            except OSError:
                continue

    def is_below(pid: int) -> bool:
        while pid in parents:
            if pid == parent:
                return True
            pid = parents[pid]
        return False

    return [pid for pid, name in names.items() if name.startswith(b"ray::perform") and is_below(pid)]


@startable
def test_the_command_starts_a_cluster_of_its_own(bundle_w8a8: Path, tmp_path: Path) -> None:
    words = ["--thresholds", "0.5", "--prompt", "braking", "--seeds", 1, "--frames", 2, "--ray", "local"]
    outcome = fastcar_run("sweep", bundle_w8a8, *words, "--processes", 2, "--out", tmp_path, "--json")
    assert outcome.code == 0, outcome.stderr
    assert json.loads(outcome.stdout)["runs"] == 2 and not ray.is_initialized()


@startable
def test_a_killed_worker_loses_nothing(cluster: None, tmp_path: Path) -> None:
    done, lost = run(tasks_that_die.dies_once, [(str(tmp_path), number) for number in range(4)])
    assert done == {0: (0, 1), 1: (1, 2), 2: (2, 1), 3: (3, 2)} and sorted(lost) == [1, 3]


@startable
def test_errors_come_through_and_threads_are_one(cluster: None) -> None:
    assert run(tasks_that_die.thread_settings, [0])[0] == {0: ("1", "1")}
    with pytest.raises(UsageError) as error:
        run(tasks_that_die.refuses, [7])
    assert (error.value.subject, error.value.found) == ("task", "7")
    with pytest.raises(UsageError, match="twice"):
        run(tasks_that_die.always_dies, [0])


def test_a_python_that_ray_cannot_start_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its shell would fail for every worker, and the tasks would wait for ever."""
    monkeypatch.setattr("sys.executable", "/home/an odd (name)/bin/python")
    with pytest.raises(UsageError, match=r"--ray local: Python at .*odd \(name\)"):
        check_address(LOCAL)


def test_no_cluster_is_one_error() -> None:
    with pytest.raises(UsageError, match=r"--ray: 127\.0\.0\.1:1"):
        check_address("127.0.0.1:1")
    with pytest.raises(UsageError, match="refused"):
        check_address("ray://127.0.0.1:1")
    outcome = fastcar_run("sweep", "b", "--prompt", "a", "--ray", "127.0.0.1:1", "--out", "o")
    assert outcome.code == 2 and "ray start --head" in outcome.error


@startable
def test_a_sweep_whose_worker_is_killed_half_way(cluster: None, bundle_w8a8: Path, tmp_path: Path) -> None:
    bundle = Bundle.open(bundle_w8a8)
    killed, told = [], []

    def kill_one(stage: str, done: int, total: int) -> None:
        if stage == "runs" and done and not killed:
            killed.extend(workers_below(os.getpid())[:1])
            for pid in killed:
                os.kill(pid, signal.SIGKILL)

    rows = run_sweep(tiny_plan(bundle, tmp_path / "ray"), run_with_ray, 2, kill_one, told.append)
    assert killed and len(told) <= 1
    assert len({row["key"] for row in rows}) == len(rows)
    stored = sorted(file.stem for file in (tmp_path / "ray" / "runs").glob("*.safetensors"))
    assert stored == sorted(row["key"] for row in rows)
    assert same_results(rows, run_sweep(tiny_plan(bundle, tmp_path / "here"), Here(), 1))
