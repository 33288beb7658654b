"""A board to deploy to: an OpenSSH server on this computer, with keys, home folder and path of its own."""

from __future__ import annotations

import getpass
import hashlib
import json
import os
import shutil
import socket
import subprocess
import sys
import time
import venv
import zipfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from cli_runs import Outcome, run

from fastcar.export.pipeline import export_model
from fastcar.overlays import load_engine
from fastcar.overlays.bitfile import write_emulated_bitfile
from fastcar.overlays.design import block_design
from fastcar.overlays.hwh import handoff_text

CONFIGURATION = """\
Port {port}
ListenAddress 127.0.0.1
HostKey {folder}/host
PidFile {folder}/pid
AuthorizedKeysFile {folder}/user.pub
PasswordAuthentication no
KbdInteractiveAuthentication no
StrictModes no
UsePAM no
PermitRootLogin yes
MaxStartups 100
SetEnv "HOME={home}" "PATH={bin}:{path}" "FASTCAR_BASE_PYTHON={folder}/python" "PIP_NO_INDEX=1"
"""
MAIN = (
    'import sys\nif sys.argv[1:] == ["--version"]:\n    print("fastcar, version {version}")\nelse:\n    sys.exit(7)\n'
)


@dataclass(frozen=True)
class Server:
    """``home`` and ``bin``: of the account that answers; what lies in ``bin`` hides the programs of the system."""

    folder: Path
    port: int
    home: Path
    bin: Path

    @property
    def options(self) -> list[str]:
        known = f"UserKnownHostsFile={self.folder / 'known'}"
        words = ["--port", str(self.port), "--identity", str(self.folder / "user")]
        return [*words, "--ssh-option", known, "--ssh-option", "GlobalKnownHostsFile=/dev/null"]

    def command(self, bundle: Path, *more: object, folder: str = "") -> list[object]:
        return ["deploy", bundle, f"{getpass.getuser()}@127.0.0.1{folder}", *self.options, *more]

    def deploy(self, bundle: Path, *more: object, folder: str = "") -> Outcome:
        return run(*self.command(bundle, *more, folder=folder))

    def deployed(self, bundle: Path, *more: object, folder: str = "") -> dict[str, Any]:
        """The record of a deploy that has to succeed."""
        outcome = self.deploy(bundle, *more, "--json", folder=folder)
        assert outcome.code == 0, outcome.stderr
        return json.loads(outcome.stdout)

    def start(self, bundle: Path, *more: object) -> subprocess.Popen:
        """A deploy in a process group of its own, to be killed."""
        command = [sys.executable, "-m", "fastcar", *map(str, self.command(bundle, *more))]
        return subprocess.Popen(
            command, start_new_session=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        )

    def hide(self, name: str, text: str) -> Path:
        """Put a shell script in the place of a program; ``$real`` is the program."""
        file = self.bin / name
        found = shutil.which(name) or "false"
        file.unlink(missing_ok=True)  # it may be a link to the system's own, which must not be written through
        file.write_text(f"#!/bin/sh\nreal={found}\n{text}\n")
        file.chmod(0o755)
        return file

    def base_on(self, python: Path | str) -> None:
        """Make this the Python of the board whose packages are used."""
        file = self.folder / "python"
        file.write_text(f'#!/bin/sh\nexec "{python}" "$@"\n')
        file.chmod(0o755)

    @property
    def root(self) -> Path:
        return self.home / "fastcar"

    @property
    def current(self) -> str | None:
        """The id of the release in use."""
        link = self.root / "current"
        return os.readlink(link).removeprefix("releases/") if link.is_symlink() else None

    def staged_bytes(self) -> int:
        return sum(file.stat().st_size for file in (self.root / "incoming").rglob("*") if file.is_file())


@pytest.fixture(scope="session")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    path = os.environ["PATH"] + ":/usr/sbin:/usr/local/sbin"
    sshd = shutil.which("sshd", path=path)
    missing = [name for name in ("ssh", "ssh-keygen", "rsync") if shutil.which(name) is None]
    if sshd is None or missing:
        pytest.skip(f"not installed: {', '.join([*missing, *([] if sshd else ['sshd'])])}")
    folder = tmp_path_factory.mktemp("sshd")
    for name in ("host", "user", "stranger"):
        subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(folder / name)], check=True)
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    home, own = folder / "home", folder / "bin"
    home.mkdir()
    own.mkdir()
    kind, key, *_ = (folder / "host.pub").read_text().split()
    (folder / "known").write_text(f"[127.0.0.1]:{port} {kind} {key}\n")
    text = CONFIGURATION.format(port=port, folder=folder, home=home, bin=own, path=path)
    configuration = folder / "config"
    # Newer servers hold refused keys against an address; older ones do not know the word.
    for more in ("PerSourcePenalties no\n", ""):
        configuration.write_text(text + more)
        if os.getuid() == 0:
            Path("/run/sshd").mkdir(mode=0o755, exist_ok=True)
        if subprocess.run([sshd, "-t", "-f", str(configuration)], capture_output=True).returncode == 0:
            break
    with (folder / "log").open("w") as log:
        process = subprocess.Popen([sshd, "-D", "-e", "-f", str(configuration)], stderr=log)
    try:
        _wait_for(port, process, folder / "log")
        yield Server(folder, port, home, own)
    finally:
        process.terminate()
        process.wait()


@pytest.fixture(scope="session")
def small_python(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """With pip and no other package: pip is quicker the less there is to look at."""
    folder = tmp_path_factory.mktemp("python")
    venv.create(folder, with_pip=True)
    return folder / "bin/python"


@pytest.fixture
def board(server: Server, small_python: Path) -> Iterator[Server]:
    """The server with nothing on it and every program as the system has it."""
    _empty(server.home, server.bin)
    server.base_on(small_python)
    yield server
    _empty(server.home, server.bin)


@pytest.fixture(scope="session")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Of a package that answers ``--version`` and needs nothing."""
    return make_wheel(tmp_path_factory.mktemp("wheel"))


@pytest.fixture(scope="session")
def other_wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_wheel(tmp_path_factory.mktemp("wheel"), version="9.10")


@pytest.fixture(scope="session")
def broken_wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """It installs, but does not start."""
    return make_wheel(tmp_path_factory.mktemp("wheel"), version="9.11", main="raise ImportError('no libstdc++')")


@pytest.fixture(scope="session")
def greedy_wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Its extra ``board`` needs a package that is nowhere."""
    return make_wheel(tmp_path_factory.mktemp("wheel"), version="9.12", needs="fastcar-test-nowhere")


@pytest.fixture
def overlay(tmp_path: Path) -> Path:
    """A bitstream of 6 MB, its handoff and its device tree."""
    bit = tmp_path / "build" / "fastcar.bit"
    bit.parent.mkdir()
    write_overlay(bit, "kv260", bytes(range(1, 251)) * 24_000)
    bit.with_suffix(".dtbo").write_text("device tree\n")
    return bit


def write_overlay(bit: Path, engine: str, configuration: bytes) -> None:
    """The two files of a build, as Vivado names and heads them."""
    design = block_design(load_engine(engine))
    write_emulated_bitfile(bit, design)
    header = bit.read_bytes().partition(b"no configuration")[0][:-4]
    bit.write_bytes(header + len(configuration).to_bytes(4, "big") + configuration)
    bit.with_suffix(".hwh").write_text(handoff_text(design))


@pytest.fixture(scope="session")
def bundle_w8a8(car_like: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The same as everywhere, packed for the overlay."""
    folder = tmp_path_factory.mktemp("packed") / "w8a8"
    return export_model(car_like, folder, recipe="w8a8", board="kv260", evaluate=False).path


def make_wheel(folder: Path, version: str = "9.9", main: str = MAIN, needs: str = "") -> Path:
    path = folder / f"fastcar_edge-{version}-py3-none-any.whl"
    about = f"fastcar_edge-{version}.dist-info"
    metadata = f"Metadata-Version: 2.1\nName: fastcar-edge\nVersion: {version}\nProvides-Extra: board\n"
    if needs:
        metadata += f'Requires-Dist: {needs} ; extra == "board"\n'
    files = {
        "fastcar/__init__.py": "",
        "fastcar/__main__.py": main.replace("{version}", version),
        f"{about}/METADATA": metadata,
        f"{about}/WHEEL": "Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
    }
    record = "".join(f"{name},,\n" for name in (*files, f"{about}/RECORD"))
    with zipfile.ZipFile(path, "w") as archive:
        for name, text in {**files, f"{about}/RECORD": record}.items():
            archive.writestr(name, text)
    return path


@pytest.fixture(scope="session")
def sha256():
    return lambda path: hashlib.sha256(path.read_bytes()).hexdigest()


def _wait_for(port: int, process: subprocess.Popen, log: Path) -> None:
    for _ in range(100):
        assert process.poll() is None, log.read_text()
        with socket.socket() as client:
            if client.connect_ex(("127.0.0.1", port)) == 0:
                return
        time.sleep(0.05)
    raise AssertionError(log.read_text())


def _empty(*folders: Path) -> None:
    for folder in folders:
        for item in folder.iterdir():
            shutil.rmtree(item) if item.is_dir() and not item.is_symlink() else item.unlink()
