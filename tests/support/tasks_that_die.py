"""Tasks for the executors of a sweep: functions of a module, as other processes need them."""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path

from fastcar.toolkit.errors import UsageError


def squared(number: int) -> int:
    return number * number


def thread_settings(_: int) -> tuple[str | None, str | None]:
    return os.environ.get("OMP_NUM_THREADS"), os.environ.get("OPENBLAS_NUM_THREADS")


def dies_once(task: tuple[str, int]) -> tuple[int, int]:
    """(number, how often it was begun). The process of an odd number is killed the first time."""
    folder, number = task
    begun = Path(folder) / str(number)
    with begun.open("a") as file:
        file.write("x")
    times = begun.stat().st_size
    if number % 2 and times == 1:
        os.kill(os.getpid(), signal.SIGKILL)
    return number, times


def always_dies(_: int) -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def refuses(number: int) -> int:
    raise UsageError("task", str(number), "another number", "Choose one.")


def breaks(number: int) -> int:
    class Local(Exception):  # cannot be pickled
        pass

    raise Local(f"task {number}")


def slow_after_the_first(number: int) -> int:
    time.sleep(0 if number == 0 else 60)
    return number


def own_process(_: int) -> int:
    return os.getpid()
