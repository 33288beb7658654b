"""The same tasks on a Ray cluster, or on one that is started here for the purpose.

A task is a function of what it is given, so that neither the results nor the output folder have to be shared: only the
bundles' paths have to be the same on every node, and this package has to be installed there.
"""

from __future__ import annotations

import logging
import os
import shlex
import socket
import sys
from collections.abc import Callable, Sequence
from typing import Any

from ..errors import UsageError
from .execute import ONE_THREAD, lost_twice

__all__ = ["LOCAL", "can_start_workers", "check_address", "require_ray", "run_with_ray"]

LOCAL = "local"
CONNECT_SECONDS = 10


def require_ray() -> Any:
    """UsageError if ray is not installed."""
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    os.environ.setdefault("RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO", "0")
    try:
        import ray
    except ImportError:
        fix = "pip install 'fastcar-edge[evaluate,ray]'"
        raise UsageError("--ray", "no package ray", "the package ray installed", fix) from None
    return ray


def run_with_ray(
    perform: Callable[[Any], Any],
    tasks: Sequence[Any],
    processes: int,
    on_done: Callable[[int, Any], None],
    on_lost: Callable[[int, str], None],
    *,
    address: str = LOCAL,
) -> None:
    """As ``run_in_processes``, each task on one processor of the cluster at ``address``; ``local``: one of
    ``processes`` on this machine, which is ended afterwards. Where this process has joined a cluster already, that one
    is used and left as it is. ``processes`` 0: as many as the cluster has processors. UsageError if there is no cluster
    at the address.
    """
    ray = require_ray()
    started = not ray.is_initialized()
    if started:
        _connect(ray, address, processes)
    try:
        remote = ray.remote(num_cpus=1, max_retries=0, runtime_env={"env_vars": _variables(address)})(perform)
        waiting, again, running = list(range(len(tasks)))[::-1], set[int](), dict[Any, int]()
        most = processes or int(ray.cluster_resources().get("CPU", 1))
        while waiting or running:
            while waiting and len(running) < most:
                index = waiting.pop()
                running[remote.remote(tasks[index])] = index
            (ready, *_), _ = ray.wait(list(running), num_returns=1)
            index = running.pop(ready)
            try:
                result = ray.get(ready)
            except ray.exceptions.RayTaskError as error:
                raise (error.cause if isinstance(error.cause, Exception) else error) from None
            except ray.exceptions.RayError as error:  # its worker or node is gone
                how = type(error).__name__
                if index in again:
                    raise lost_twice(how) from None
                again.add(index)
                on_lost(index, how)
                waiting.append(index)
            else:
                on_done(index, result)
    finally:
        if started:
            ray.shutdown()


def _variables(address: str) -> dict[str, str]:
    """Of the workers: one thread each; here, a checkout that is not installed is found, too."""
    path = os.pathsep.join(path for path in sys.path if path)
    return dict(ONE_THREAD) | ({"PYTHONPATH": path} if address == LOCAL else {})


def _connect(ray: Any, address: str, processes: int) -> None:
    options: dict[str, Any] = {"address": address, "log_to_driver": False, "logging_level": logging.ERROR}
    check_address(address)
    if address == LOCAL:
        options |= {"num_cpus": processes, "include_dashboard": False}
    try:
        ray.init(**options)
    except (ConnectionError, RuntimeError, ValueError, TimeoutError) as error:
        raise _no_cluster(address, " ".join(str(error).split())[:200] or type(error).__name__) from error


def check_address(address: str) -> None:
    """UsageError if nobody answers at HOST:PORT; ray itself would try for minutes. Other forms are left to it.

    Nor does a cluster start here whose workers Ray cannot: it gives the path of this Python to a shell as it is, and
    would wait for them for ever.
    """
    if address == LOCAL and not can_start_workers():
        expected = "a path without characters that are special to a shell, which Ray does not quote"
        raise UsageError("--ray local", f"Python at {sys.executable}", expected, "Make the environment elsewhere.")
    host, colon, port = address.rpartition("://")[2].rpartition(":")
    if address in (LOCAL, "auto") or not (colon and port.isdigit()):
        return
    try:
        socket.create_connection((host, int(port)), CONNECT_SECONDS).close()
    except (OSError, OverflowError) as error:
        raise _no_cluster(address, (getattr(error, "strerror", None) or str(error)).lower()) from error


def can_start_workers() -> bool:
    """Whether a cluster that is started here finds this Python."""
    return shlex.quote(sys.executable) == sys.executable


def _no_cluster(address: str, reason: str) -> UsageError:
    expected, fix = "the address of a running Ray cluster, or local", "Start one with: ray start --head"
    return UsageError("--ray", f"{address}: {reason}", expected, fix)
