"""One deploy at a time into a folder, held by a connection: it frees itself when the connection ends."""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import tempfile
import threading
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import IO

from .child import GRACE_SECONDS, Reply
from .errors import DeployError
from .remote import AGAIN, CONNECTION_LOST, Remote, facts_of, script

__all__ = ["DeployLock"]

BEAT_SECONDS = 10
LONGEST_SOCKET = 70  # of the 107 bytes that a socket's path may have; ssh adds some while it makes it


class DeployLock:
    """Taken on entry, freed on exit; ``remote``: the way to the board that shares the lock's connection.

    The board frees it when this process ends, or within a minute after the network does. DeployError on entry if
    another deploy holds it or the folder cannot be made.
    """

    def __init__(self, remote: Remote, folder: str) -> None:
        self._target, self._folder = remote.target, folder
        self._work, control = _control_socket()
        self.remote = remote.sharing(control)
        master = ["-o", "ControlMaster=yes", "-o", "ControlPersist=no"] if control else []
        who = f"process {os.getpid()} on {socket.gethostname()}"
        command = self.remote.command(script("lock.sh"), folder, who)
        self._command = [command[0], *master, *command[1:]]
        self._ended = threading.Event()

    def __enter__(self) -> DeployLock:
        self._errors: IO[bytes] = tempfile.TemporaryFile()
        self._process = subprocess.Popen(
            self._command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=self._errors
        )
        try:
            said: list[str] = []
            while line := self._process.stdout.readline().decode(errors="replace"):
                said.append(line)
                if "locked" in facts_of(line):
                    break
            else:
                raise self._refusal("".join(said))
        except BaseException:
            self._end()
            raise
        threading.Thread(target=self._beat, daemon=True).start()
        return self

    def __exit__(self, kind: type | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._end()

    def check(self) -> None:
        """DeployError if the lock was lost with its connection: another deploy may be at work by now."""
        if self._process.poll() is not None:
            raise DeployError(self._target, "the connection that held the lock ended", "one that lasts", AGAIN)

    def _refusal(self, output: str) -> DeployError:
        code = self._process.wait()
        self._errors.seek(0)
        reply = Reply(code, output, self._errors.read().decode(errors="replace"))
        if code == CONNECTION_LOST:
            return self.remote.failure(reply)
        place = f"{self._target}:{self._folder}"
        if holder := facts_of(output).get("holder"):
            return DeployError(
                place,
                f"another deploy is at work ({holder[0]})",
                "one at a time",
                "Wait for it to end; one that was killed frees the folder within a minute.",
            )
        return DeployError(place, reply.last_line, "a folder that can be written", "Choose another folder.")

    def _beat(self) -> None:
        """Signs of life: without them the board takes the connection for dead."""
        while not self._ended.wait(BEAT_SECONDS):
            try:
                self._process.stdin.write(b".")
                self._process.stdin.flush()
            except (OSError, ValueError):
                return

    def _end(self) -> None:
        self._ended.set()
        with suppress(OSError):
            self._process.stdin.close()  # the board's side ends by itself, and frees the lock in doing so
        try:
            self._process.wait(GRACE_SECONDS)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        finally:
            self._process.stdout.close()
            self._errors.close()
            if self._work:
                shutil.rmtree(self._work, ignore_errors=True)


def _control_socket() -> tuple[Path | None, Path | None]:
    """A private folder and the socket in it; none where no path is short enough, and every command connects anew."""
    for base in (None, "/tmp"):
        try:
            work = Path(tempfile.mkdtemp(prefix="fastcar-", dir=base))
        except OSError:
            continue
        if len(str(work / "ssh").encode()) <= LONGEST_SOCKET:
            return work, work / "ssh"
        shutil.rmtree(work, ignore_errors=True)
    return None, None
