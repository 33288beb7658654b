"""Commands on the board over OpenSSH, and what its failures mean."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from importlib import resources
from pathlib import Path
from shlex import join

from .child import Reply, run_child
from .errors import DeployError
from .target import Target

__all__ = ["Remote", "facts_of", "script"]

CONNECTION_LOST = 255
MARK = "fastcar:"
AGAIN = "Run the same command again: it continues where this one ended."


@dataclass(frozen=True)
class Remote:
    """How to reach a target. ``control``: socket of a connection that is open already, shared by what follows."""

    target: Target
    port: int | None = None
    identity: Path | None = None
    options: tuple[str, ...] = ()
    control: Path | None = None

    def ssh(self) -> list[str]:
        """ssh with every option, without the host; the user's own options come first, since the first one counts."""
        words = ["ssh", *(word for option in self.options for word in ("-o", option))]
        for option in ("BatchMode=yes", "ConnectTimeout=10", "ServerAliveInterval=10", "ServerAliveCountMax=4"):
            words += ["-o", option]
        words += ["-o", "LogLevel=ERROR", "-T"]
        if self.port is not None:
            words += ["-p", str(self.port)]
        if self.identity is not None:
            name = _literal(self.identity).replace("\\", "\\\\").replace('"', '\\"')
            words += ["-o", f'IdentityFile="{name}"', "-o", "IdentitiesOnly=yes"]
        if self.control is not None:
            words += ["-S", _literal(self.control)]
        return words

    def command(self, text: str, *arguments: str) -> list[str]:
        """ssh that runs the shell script ``text`` with these arguments on the board."""
        return [*self.ssh(), "--", self.target.login, join(["sh", "-c", text, "sh", *arguments])]

    def run(self, text: str, *arguments: str, stdin: str = "", on_line: Callable[[str], None] | None = None) -> Reply:
        """Run a script to its end. DeployError if the board cannot be reached; its exit code is the caller's."""
        reply = run_child(self.command(text, *arguments), on_line, stdin)
        if reply.code == CONNECTION_LOST:
            raise self.failure(reply)
        return reply

    def sharing(self, control: Path | None) -> Remote:
        return replace(self, control=control)

    def failure(self, reply: Reply) -> DeployError:
        """The error that ssh's last words stand for."""
        said = reply.errors
        port = f"-p {self.port} " if self.port is not None else ""
        login = self.target.login
        host = f"'[{self.target.host}]:{self.port}'" if self.port not in (None, 22) else self.target.host
        known = (
            ("REMOTE HOST IDENTIFICATION HAS CHANGED", "another host key than the one known for it", "the known key",
             f"If the board was set up anew: ssh-keygen -R {host}, then connect once: ssh {port}{login}"),
            ("Host key verification failed", "its host key is not known", "a key accepted before",
             f"Connect once and compare the fingerprint: ssh {port}{login}"),
            ("Permission denied (", "it refused every key offered", "a key that needs no password",
             f"Install one: ssh-copy-id {port}{login}; or name another with --identity FILE."),
            ("Too many authentication failures", "it refused too many keys", "one key it accepts",
             "Name it with --identity FILE."),
            ("Could not resolve hostname", "no address is known for this name", "a host of the network",
             "Correct the name or give the address."),
            ("Connection refused", f"nothing listens on port {self.port or 22}", "an SSH server",
             "Start sshd on the board, or give its port with --port N."),
            ("No route to host", "no route to it", "a host of the network", "Check cable and address."),
            ("Network is unreachable", "no route to it", "a host of the network", "Check cable and address."),
            ("timed out", "no answer", "a board that is switched on", "Check power, cable and address."),
            ("onfiguration option", self._complaint(reply), "options of ssh_config", "Correct --ssh-option."),
            ("extra arguments", self._complaint(reply), "options of ssh_config", "Correct --ssh-option."),
            ("command-line", self._complaint(reply), "options of ssh_config", "Correct --ssh-option."),
        )  # fmt: skip
        for words, found, expected, fix in known:
            if words in said:
                return DeployError(self.target, found, expected, fix)
        return DeployError(self.target, f"the connection ended ({reply.last_line})", "one that lasts", AGAIN)

    @staticmethod
    def _complaint(reply: Reply) -> str:
        return f"ssh says: {reply.last_line}"


def _literal(path: Path) -> str:
    """ssh replaces %-words in file names."""
    return str(path).replace("%", "%%")


def script(*names: str) -> str:
    """The text of these shell scripts, one after the other."""
    folder = resources.files(__package__) / "scripts"
    return "\n".join((folder / name).read_text("utf-8") for name in names)


def facts_of(output: str) -> dict[str, list[str]]:
    """``fastcar:name=value`` lines by name; anything else (a talkative login shell) is skipped."""
    facts: dict[str, list[str]] = {}
    for line in output.splitlines():
        name, found, value = line.removeprefix(MARK).partition("=")
        if line.startswith(MARK) and found:
            facts.setdefault(name, []).append(value)
    return facts
