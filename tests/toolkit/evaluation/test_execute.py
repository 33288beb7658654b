"""Tasks in processes: each done once, whatever dies meanwhile."""

from __future__ import annotations

import multiprocessing
import time
from pathlib import Path

import pytest
import tasks_that_die

from fastcar.toolkit.errors import UsageError
from fastcar.toolkit.evaluation.execute import run_in_processes


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
