"""Tasks in processes: each done once, whatever dies meanwhile."""

from __future__ import annotations

import multiprocessing
import subprocess
import sys
import time
from pathlib import Path

import pytest
import tasks_that_die

from fastcar.toolkit.errors import UsageError
from fastcar.toolkit.evaluation.execute import Processes, run_in_processes


def run(perform, tasks, processes: int = 2) -> tuple[dict[int, object], list[tuple[int, str]]]:
    done: dict[int, object] = {}
    lost: list[tuple[int, str]] = []

    def on_done(index: int, result: object) -> None:
        assert index not in done
        done[index] = result

    run_in_processes(perform, tasks, processes, on_done, lambda index, how: lost.append((index, how)))
    assert not multiprocessing.active_children()
    return done, lost


def test_every_task_is_done_on_one_thread() -> None:
    assert run(tasks_that_die.squared, range(5)) == ({n: n * n for n in range(5)}, [])
    assert run(tasks_that_die.thread_settings, [0], 1)[0] == {0: ("1", "1")}
    assert run(tasks_that_die.squared, []) == ({}, [])


def test_a_killed_process_loses_nothing(tmp_path: Path) -> None:
    done, lost = run(tasks_that_die.dies_once, [(str(tmp_path), number) for number in range(4)])
    assert done == {0: (0, 1), 1: (1, 2), 2: (2, 1), 3: (3, 2)}
    assert sorted(lost) == [(1, "signal 9"), (3, "signal 9")]


def test_a_task_that_kills_twice_is_an_error() -> None:
    with pytest.raises(UsageError, match=r"twice \(signal 9\)"):
        run(tasks_that_die.always_dies, [0], 1)
    assert not multiprocessing.active_children()


def test_errors_come_through() -> None:
    with pytest.raises(UsageError) as error:
        run(tasks_that_die.refuses, [7], 1)
    assert (error.value.subject, error.value.found, error.value.fix) == ("task", "7", "Choose one.")
    with pytest.raises(RuntimeError, match="Local: task 3"):
        run(tasks_that_die.breaks, [3], 1)


def test_an_interruption_ends_the_processes_at_once() -> None:
    def interrupted(index: int, result: object) -> None:
        raise KeyboardInterrupt

    start = time.monotonic()
    with pytest.raises(KeyboardInterrupt):
        run_in_processes(tasks_that_die.slow_after_the_first, [0, 1], 2, interrupted, lambda index, how: None)
    assert not multiprocessing.active_children() and time.monotonic() - start < 40


def test_a_task_is_done_by_its_owner() -> None:
    first: dict[int, object] = {}
    second: dict[int, object] = {}
    with Processes(tasks_that_die.own_process, 2) as running:
        running.run(range(5), first.__setitem__, owners=[0, 1, 1, 0, 1])
        running.run(range(2), second.__setitem__, owners=[1, 0])
    assert first[0] == first[3] == second[1]
    assert first[1] == first[2] == first[4] == second[0] != first[0]
    assert not multiprocessing.active_children()


def test_an_owner_that_dies_is_started_again(tmp_path: Path) -> None:
    done: dict[int, object] = {}
    with Processes(tasks_that_die.dies_once, 2) as running:
        running.run([(str(tmp_path), number) for number in range(3)], done.__setitem__, owners=[0, 0, 0])
    assert done == {0: (0, 1), 1: (1, 2), 2: (2, 1)}


def test_processes_of_a_killed_parent_end(tmp_path: Path) -> None:
    """Even those that wait for work."""
    code = (
        "import os, signal, sys; sys.path.insert(0, sys.argv[1])\n"
        "import tasks_that_die\n"
        "from fastcar.toolkit.evaluation.execute import Processes\n"
        "if __name__ == '__main__':\n"
        "    running = Processes(tasks_that_die.own_process, 1)\n"
        "    running.run([0], lambda index, pid: print(pid, flush=True))\n"
        "    os.kill(os.getpid(), signal.SIGKILL)\n"
    )
    script = tmp_path / "parent.py"
    script.write_text(code, "utf-8")
    support = str(Path(tasks_that_die.__file__).parent)
    ended = subprocess.run([sys.executable, script, support], stdout=subprocess.PIPE, timeout=60)
    worker = Path("/proc") / ended.stdout.decode().strip()
    assert worker.name.isdigit()
    deadline = time.monotonic() + 20
    while worker.exists() and "Z" not in (worker / "stat").read_text().split()[2] and time.monotonic() < deadline:
        time.sleep(0.1)
    assert not worker.exists() or "Z" in (worker / "stat").read_text().split()[2]
