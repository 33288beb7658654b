"""The scripts of a release, run as they are run on a board, with a recorder in the place of its Python."""

from __future__ import annotations

import os
import subprocess
from importlib import resources
from pathlib import Path

import pytest

from fastcar.toolkit.deploy.release import SCRIPTS

RECORDER = '#!/bin/sh\nfor word; do printf "%s\\n" "$word"; done\necho "BOARD=$BOARD XILINX_XRT=$XILINX_XRT"\n'


@pytest.fixture
def release(tmp_path: Path) -> Path:
    """An installed release in a folder with spaces; ``env/bin/python`` prints what it is asked."""
    folder = tmp_path / "my board" / "releases" / "0123456789ab"
    for name in ("overlay", "bundle", "env/bin"):
        (folder / name).mkdir(parents=True)
    (folder / "overlay/fastcar.bit").write_text("bits")
    (folder / "env/.complete").write_text("")
    recorder = folder / "env/bin/python"
    recorder.write_text(RECORDER)
    recorder.chmod(0o755)
    for name in SCRIPTS:
        file = folder / name
        file.write_text((resources.files("fastcar.toolkit.deploy") / "scripts" / name).read_text())
        file.chmod(0o755)
    (tmp_path / "my board" / "current").symlink_to("releases/0123456789ab")
    return folder


def generate(release: Path, *arguments: str, user: int = 0, **environment: str) -> subprocess.CompletedProcess[str]:
    """``current/generate.sh`` as this user, by what ``id -u`` says."""
    tools = release.parent / "tools"
    tools.mkdir(exist_ok=True)
    (tools / "id").write_text(f"#!/bin/sh\necho {user}\n")
    (tools / "id").chmod(0o755)
    clean = {"PATH": f"{tools}:{os.environ['PATH']}", "FASTCAR_PROFILE": str(release.parent / "profile.d/pynq_venv.sh")}
    script = release.parents[1] / "current/generate.sh"
    return subprocess.run([script, *arguments], env=clean | environment, capture_output=True, text=True)


def asked(result: subprocess.CompletedProcess[str]) -> list[str]:
    assert result.returncode == 0, result.stderr
    return result.stdout.splitlines()[:-1]


START = ["-I", "-m", "fastcar", "generate"]


def test_prompt_becomes_the_whole_command(release: Path) -> None:
    expected = ["--prompt=left turn", f"--overlay={release}/overlay/fastcar.bit", "--out=clip"]
    assert asked(generate(release, "left turn")) == [*START, f"{release}/bundle", "--backend", "pynq", *expected]


def test_more_options_are_passed_on_and_come_last(release: Path) -> None:
    words = asked(generate(release, "it's a $turn", "--seed", "3", "--out", "my clip"))
    assert words[-4:] == ["--seed", "3", "--out", "my clip"]
    assert "--prompt=it's a $turn" in words
    assert "--out=clip" not in words
    assert "--out=clip" not in asked(generate(release, "left", "--out=x"))


def test_profile_of_the_board_is_read_by_bash(release: Path) -> None:
    profile = release.parent / "profile.d"
    profile.mkdir()
    (profile / "pynq_venv.sh").write_text("source /dev/null\nexport XILINX_XRT=/usr\necho noise\nfalse\n")
    (profile / "boardname.sh").write_text("export BOARD=KV260\n")
    result = generate(release, "left turn", "--seed", "1")
    assert result.stdout.splitlines()[-1] == "BOARD=KV260 XILINX_XRT=/usr"
    assert asked(result)[-2:] == ["--seed", "1"]
    assert "noise" not in result.stdout


def test_needs_root_and_says_how(release: Path) -> None:
    result = generate(release, "left turn", user=1000)
    assert result.returncode == 2
    (line,) = result.stderr.splitlines()
    assert 'current/generate.sh "left turn"' in line
    assert "run: sudo /" in line


@pytest.mark.parametrize("device", ["emulated", "board"])
def test_named_device_needs_no_root(release: Path, device: str) -> None:
    assert f"--device={device}" in asked(generate(release, "left turn", user=1000, FASTCAR_DEVICE=device))


def test_overlay_is_needed_but_for_the_emulated_board(release: Path) -> None:
    (release / "overlay/fastcar.bit").unlink()
    (release / "overlay").rmdir()
    assert "deploy again with --overlay" in generate(release, "left turn").stderr
    words = asked(generate(release, "left turn", FASTCAR_DEVICE="emulated:late"))
    assert not [word for word in words if word.startswith("--overlay")]


def test_says_how_it_is_used(release: Path) -> None:
    for arguments in ((), ("--help",)):
        result = generate(release, *arguments)
        assert result.returncode == 2
        assert result.stderr.startswith('usage: generate.sh "left turn"')


def test_release_that_is_not_installed(release: Path) -> None:
    (release / "env/.complete").unlink()
    assert f"run {release}/install.sh" in generate(release, "left turn").stderr
    result = subprocess.run([release / "activate.sh"], capture_output=True, text=True)
    assert result.returncode == 1
    assert f"run {release}/install.sh" in result.stderr


def test_activation_does_not_replace_a_folder(release: Path) -> None:
    current = release.parents[1] / "current"
    current.unlink()
    current.mkdir()
    result = subprocess.run([release / "activate.sh"], capture_output=True, text=True)
    assert result.returncode == 1
    assert "current is no link" in result.stderr
    assert current.is_dir()


def test_installation_names_a_python_that_is_too_old(release: Path, tmp_path: Path) -> None:
    old = tmp_path / "python"
    old.write_text("#!/bin/sh\necho 3.8\n")
    old.chmod(0o755)
    (release / "env/.complete").unlink()
    environment = {**os.environ, "FASTCAR_BASE_PYTHON": str(old)}
    result = subprocess.run([release / "install.sh"], capture_output=True, text=True, env=environment)
    assert result.returncode == 3
    assert result.stderr == f"fastcar: {old} is not Python 3.10 or newer\n"
