"""The emulated device needs no rights: not root's, none to write where the packages lie."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import sysconfig
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest
from packed_bundle import packed_copy
from safetensors.numpy import load_file
from small_engine import small_engine

from fastcar import Bundle, generate
from fastcar.hls.build import build_library
from fastcar.overlays import Engine
from fastcar.toolkit.settings import ReplaySettings

NOBODY = 65534

PACKAGES = sysconfig.get_path("purelib")
CODE = f"""
import os, site, sys
site.addsitedir({PACKAGES!r})  # with its .pth files, as in an environment of its own
import fastcar.toolkit, pynq
"""
GENERATE = """
from fastcar.toolkit.cli.app import main
print(os.geteuid(), os.access(os.path.dirname(pynq.__file__), os.W_OK))
sys.argv = ["fastcar", *{arguments!r}]
main()
"""


@dataclass(frozen=True)
class User:
    """``prefix``: of a command that is to run as the user; ``home``: a folder of the user's."""

    prefix: tuple[str, ...]
    python: str
    home: Path

    def run(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        environment = {"PATH": os.defpath, "HOME": str(self.home), "XDG_CACHE_HOME": str(self.home / "cache")}
        environment["TMPDIR"] = str(self.home)
        command = [*self.prefix, self.python, "-I", *arguments]
        return subprocess.run(command, capture_output=True, text=True, cwd=self.home, env=environment)


def readable_python(user: User) -> str | None:
    """The running one, or the system's of the same version where the running one lies in root's home.

    None if there is none that the user can run, or the packages cannot be read.
    """
    version = f"python{sys.version_info[0]}.{sys.version_info[1]}"
    for candidate in (sys.executable, f"/usr/bin/{version}", f"/usr/local/bin/{version}"):
        reached = User(user.prefix, candidate, user.home)
        try:
            done = reached.run("-c", CODE + "print('%d.%d' % sys.version_info[:2])")
        except OSError:
            continue
        if done.returncode == 0 and f"python{done.stdout.strip()}" == version:
            return candidate
    return None


@pytest.fixture
def user(tmp_path: Path) -> Iterator[User]:
    if os.geteuid() != 0:
        yield User((), sys.executable, tmp_path)
        return
    if shutil.which("setpriv") is None:
        pytest.skip("runs as root, and there is no setpriv to stop being it")
    prefix = ("setpriv", f"--reuid={NOBODY}", f"--regid={NOBODY}", "--clear-groups", "--no-new-privs")
    with tempfile.TemporaryDirectory(prefix="fastcar-user-") as name:  # pytest's own folders let nobody else in
        home = Path(name)
        os.chown(home, NOBODY, NOBODY)
        found = User(prefix, sys.executable, home)
        if subprocess.run([*prefix, "true"], cwd=home, capture_output=True).returncode:
            pytest.skip("root here may not become another user")
        python = readable_python(found)
        if python is None:
            pytest.skip("Python, or the packages, lie where an ordinary user cannot read them")
        yield User(prefix, python, home)


def own(folder: Path, home: Path) -> None:
    for path in (folder, *folder.rglob("*")):
        shutil.chown(path, home.stat().st_uid, home.stat().st_gid)


def test_generates_on_the_emulated_device(bundle_w4a8: Path, user: User) -> None:
    engine = Engine(board="kv260", config=small_engine())
    bundle = Bundle.open(packed_copy(bundle_w4a8, user.home / "bundle", engine))
    library = build_library(engine.config)
    cache = user.home / "cache/fastcar"
    cache.mkdir(parents=True)
    for file in library.parent.glob(f"{library.stem}.*"):  # compiled before: that needs no rights either, but time
        shutil.copy(file, cache)
    own(user.home, user.home)

    out = user.home / "clip"
    arguments = ["generate", str(bundle.path), "--prompt", "left turn", "--frames", "2", "--threshold", "0"]
    arguments += ["--backend", "pynq", "--device", "emulated", "--out", str(out)]
    done = user.run("-c", CODE + GENERATE.format(arguments=arguments))
    assert done.returncode == 0, done.stderr
    if os.geteuid() == 0:
        assert done.stdout.splitlines()[0] == f"{NOBODY} False", "nothing can be written into PYNQ's own folder"

    replay = ReplaySettings.uniform(0.0, bundle.manifest.config.layers)
    expected = generate(bundle, "left turn", frames=2, replay=replay)
    found = load_file(out / "run.safetensors")
    np.testing.assert_array_equal(found["codes"], expected.codes)
    np.testing.assert_array_equal(found["replay"], expected.replay)
    device = json.loads((out / "result.json").read_text())["device"]
    assert (device["device"], device["waits_for"], device["interrupts_lost"]) == ("emulated", "interrupt", 0)
