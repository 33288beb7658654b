"""Where to deploy to: ``user@host:folder``."""

from __future__ import annotations

import ipaddress
import re
from dataclasses import dataclass

from ..errors import UsageError

__all__ = ["DEFAULT_FOLDER", "Target"]

DEFAULT_FOLDER = "fastcar"
EXPECTED = "user@host or user@host:folder"
FORM = re.compile(r"(?:(?P<user>[^@:/\[\]]*)@)?(?P<host>\[[^\]]*\]|[^@:/\[\]]+)(?::(?P<folder>.*))?", re.DOTALL)
# ssh and rsync hand both to a shell or take a leading "-" for an option.
NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.+-]*")


@dataclass(frozen=True)
class Target:
    """``folder``: absolute, or relative to the home folder of ``user`` on ``host``; ``host`` without brackets."""

    user: str | None
    host: str
    folder: str = DEFAULT_FOLDER

    @classmethod
    def parse(cls, text: str) -> Target:
        """IPv6 addresses stand in brackets; ``~/`` before the folder may be left out. UsageError says what is wrong."""
        form = FORM.fullmatch(text)
        if form is None or (form["folder"] or "").startswith(":"):
            fix = "Put an IPv6 address in brackets." if text.count(":") > 1 else f"Give {EXPECTED}."
            raise UsageError("target", repr(text), EXPECTED, fix)
        if form["user"] is not None and not NAME.fullmatch(form["user"]):
            raise UsageError("target", f"the user {form['user']!r}", EXPECTED, "Correct the user's name.")
        return cls(form["user"], _host(form["host"]), _folder(form["folder"]))

    @property
    def login(self) -> str:
        """As ssh takes it."""
        return f"{self.user}@{self.host}" if self.user else self.host

    @property
    def rsync_login(self) -> str:
        """The same, as rsync takes it before the colon."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{self.user}@{host}" if self.user else host

    def __str__(self) -> str:
        return self.rsync_login


def _host(text: str) -> str:
    if not text.startswith("["):
        if not NAME.fullmatch(text):
            raise UsageError("target", f"the host {text!r}", EXPECTED, "Correct the host's name.")
        return text
    address, _, zone = text[1:-1].partition("%")
    try:
        ipaddress.IPv6Address(address)
    except ValueError:
        raise UsageError("target", text, "an IPv6 address in the brackets", "Correct the address.") from None
    if zone and not NAME.fullmatch(zone):
        raise UsageError("target", text, "the name of an interface after %", "Correct the address.")
    return text[1:-1]


def _folder(text: str | None) -> str:
    if not text:
        return DEFAULT_FOLDER
    if not text.isprintable():
        raise UsageError("target", f"the folder {text!r}", "printable characters", "Choose another folder.")
    if text.isdigit():
        fix = f"Use --port {text}, or ./{text} for a folder of that name."
        raise UsageError("target", f"the folder {text!r}, which looks like a port", EXPECTED, fix)
    if text.startswith("~") and text not in ("~",) and not text.startswith("~/"):
        raise UsageError("target", f"the folder {text!r}", "~/ for the user's own home", "Give an absolute folder.")
    parts = [part for part in text.removeprefix("~").split("/") if part not in ("", ".")]
    if not parts or ".." in parts:
        found = f"the folder {text!r}"
        raise UsageError("target", found, "a folder of its own, without ..", f"Add a name: {DEFAULT_FOLDER}.")
    return ("/" if text.startswith("/") else "") + "/".join(parts)
