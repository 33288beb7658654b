"""``user@host:folder`` as people write it."""

from __future__ import annotations

import pytest

from fastcar.toolkit.deploy.target import Target
from fastcar.toolkit.errors import UsageError


@pytest.mark.parametrize(
    ("text", "user", "host", "folder"),
    [
        ("ubuntu@kria", "ubuntu", "kria", "fastcar"),
        ("kria", None, "kria", "fastcar"),
        ("ubuntu@kria:", "ubuntu", "kria", "fastcar"),
        ("ubuntu@192.168.2.99:/opt/fastcar/", "ubuntu", "192.168.2.99", "/opt/fastcar"),
        ("ubuntu@kria.local:~/my clips", "ubuntu", "kria.local", "my clips"),
        ("ubuntu@kria:a//b/./c", "ubuntu", "kria", "a/b/c"),
        ("ubuntu@kria:./2222", "ubuntu", "kria", "2222"),
        ("ubuntu@kria:with:colon@and/at", "ubuntu", "kria", "with:colon@and/at"),
        ('ubuntu@kria:it\'s "odd" $HOME', "ubuntu", "kria", 'it\'s "odd" $HOME'),
        ("root@[::1]", "root", "::1", "fastcar"),
        ("root@[fe80::5%eth0]:/opt/x", "root", "fe80::5%eth0", "/opt/x"),
    ],
)
def test_targets(text: str, user: str | None, host: str, folder: str) -> None:
    assert Target.parse(text) == Target(user, host, folder)


def test_brackets_are_for_rsync_only() -> None:
    target = Target.parse("root@[fe80::5%eth0]")
    assert (target.login, target.rsync_login) == ("root@fe80::5%eth0", "root@[fe80::5%eth0]")


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "user@host"),
        ("@kria", "the user ''"),
        ("ubuntu@", "user@host"),
        ("ubuntu@:x", "user@host"),
        ("a@b@c", "user@host"),
        ("/opt/fastcar", "user@host"),
        ("ubuntu@::1", "in brackets"),
        ("ubuntu@fe80::1", "in brackets"),
        ("ubuntu@[1.2.3.4]", "an IPv6 address in the brackets"),
        ("ubuntu@[::1%a b]", "interface"),
        ("-oProxyCommand=x", "the host '-oProxyCommand=x'"),
        ("ubuntu@-oProxyCommand=x", "the host"),
        ("-l@kria", "the user '-l'"),
        ("ub untu@kria", "the user"),
        ("ubuntu@kr ia", "the host"),
        ("ubuntu@kria;reboot", "the host"),
        ("ubuntu@kria:2222", "--port 2222"),
        ("ubuntu@kria:~other/x", "~/"),
        ("ubuntu@kria:/", "a folder of its own"),
        ("ubuntu@kria:~", "a folder of its own"),
        ("ubuntu@kria:.", "a folder of its own"),
        ("ubuntu@kria:a/../b", "without .."),
        ("ubuntu@kria:a\nb", "printable"),
    ],
)
def test_what_is_no_target(text: str, words: str) -> None:
    with pytest.raises(UsageError) as error:
        Target.parse(text)
    assert words in str(error.value)
    assert "\n" not in str(error.value)
