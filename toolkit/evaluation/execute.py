"""Tasks in processes of this machine: one a core, one thread each; a process that dies loses one task, done again."""

from __future__ import annotations

import multiprocessing
import os
import pickle
import signal
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from multiprocessing.connection import Connection, wait
from multiprocessing.process import BaseProcess
from typing import Any

from ..errors import UsageError

__all__ = ["ONE_THREAD", "Execute", "Processes", "lost_twice", "run_in_processes"]

ONE_THREAD = dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"), "1")

Execute = Callable[
    [Callable[[Any], Any], Sequence[Any], int, Callable[[int, Any], None], Callable[[int, str], None]], None
]
"""(perform, tasks, processes, on_done(index, result), on_lost(index, how)): in any order, each result once."""


@dataclass
class _Worker:
    process: BaseProcess
    connection: Connection
    task: int | None = None


def run_in_processes(
    perform: Callable[[Any], Any],
    tasks: Sequence[Any],
    processes: int,
    on_done: Callable[[int, Any], None],
    on_lost: Callable[[int, str], None],
) -> None:
    """``perform(task)`` of every task; ``perform`` is a function of a module, tasks and results can be pickled.

    What ``perform`` raises is raised here. ``on_lost`` is told of a process that died in a task, which is done once
    more; UsageError if that happens again. Nothing is left running, whatever happens.
    """
    with Processes(perform, min(processes, len(tasks))) as running:
        running.run(tasks, on_done, on_lost)


class Processes:
    """Up to ``number`` of them, started when they are needed, until the end of the context.

    One whose parent is gone, even killed, ends after its task: it reads a connection that only the parent has.
    """

    def __init__(self, perform: Callable[[Any], Any], number: int, command: str = "sweep") -> None:
        self._perform, self._number, self._command = perform, number, command
        self._workers: dict[int, _Worker] = {}

    def __enter__(self) -> Processes:
        return self

    def __exit__(self, *_: object) -> None:
        for worker in self._workers.values():
            worker.process.terminate()
        for worker in self._workers.values():
            worker.process.join(5)
            if worker.process.is_alive():
                worker.process.kill()
                worker.process.join()
            worker.connection.close()
        self._workers.clear()

    def run(
        self,
        tasks: Sequence[Any],
        on_done: Callable[[int, Any], None],
        on_lost: Callable[[int, str], None] = lambda index, how: None,
        owners: Sequence[int] | None = None,
    ) -> None:
        """As ``run_in_processes``; ``owners``: the process, 0 to ``number`` - 1, that has to do each task."""
        anyone: deque[int] = deque(range(len(tasks)) if owners is None else ())
        own = [deque(i for i, owner in enumerate(owners or ()) if owner == place) for place in range(self._number)]
        again = set[int]()
        while True:
            for place, queue in enumerate(own):
                waiting = queue or anyone
                if waiting and (place not in self._workers or self._workers[place].task is None):
                    if place not in self._workers:
                        self._workers[place] = _start(self._perform)
                    _give(self._workers[place], waiting.popleft(), tasks)
            if not any(worker.task is not None for worker in self._workers.values()):
                return
            workers = self._workers.items()
            ready = wait([handle for _, w in workers for handle in (w.connection, w.process.sentinel)])
            for place, worker in [(p, w) for p, w in workers if w.connection in ready or w.process.sentinel in ready]:
                index = worker.task
                try:
                    done, result = worker.connection.recv()
                except (EOFError, OSError):  # it died
                    worker.process.join()
                    del self._workers[place]
                    worker.connection.close()
                    if index is not None:
                        how = _how(worker.process.exitcode)
                        if index in again:
                            raise lost_twice(how, self._command) from None
                        again.add(index)
                        on_lost(index, how)
                        (anyone if owners is None else own[place]).appendleft(index)
                    continue
                if not done:
                    raise result
                worker.task = None
                on_done(index, result)


def lost_twice(how: str, command: str = "sweep") -> UsageError:
    kept = "; what is finished is kept" if command == "sweep" else ""
    fix = f"Is there enough memory? Try fewer --processes{kept}."
    return UsageError(command, f"a run ended its process twice ({how})", "processes that live", fix)


def _give(worker: _Worker, index: int, tasks: Sequence[Any]) -> None:
    worker.task = index
    with suppress(OSError):  # it died while it waited: seen at its end of the connection
        worker.connection.send(tasks[index])


def _start(perform: Callable[[Any], Any]) -> _Worker:
    ours, theirs = multiprocessing.Pipe()
    with _environment(ONE_THREAD):
        process = multiprocessing.get_context("spawn").Process(target=_work, args=(perform, theirs), daemon=True)
        process.start()
    theirs.close()  # so that the end of the process is the end of the connection
    return _Worker(process, ours)


def _work(perform: Callable[[Any], Any], connection: Connection) -> None:
    """Until the connection ends. Ctrl-C goes to the whole terminal; what to do about it is decided by the parent."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    while True:
        try:
            task = connection.recv()
        except EOFError:
            return
        try:
            reply = True, perform(task)
        except Exception as error:
            reply = False, _picklable(error)
        try:
            connection.send(reply)
        except OSError:
            return  # the parent is gone


def _picklable(error: Exception) -> Exception:
    try:
        pickle.loads(pickle.dumps(error))
    except Exception:
        return RuntimeError(f"{type(error).__name__}: {error}")
    return error


def _how(code: int | None) -> str:
    return f"signal {-code}" if code is not None and code < 0 else f"exit code {code}"


@contextmanager
def _environment(values: dict[str, str]) -> Iterator[None]:
    """For the processes started meanwhile: libraries read it when they are loaded."""
    before = {name: os.environ.get(name) for name in values}
    os.environ.update(values)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value
