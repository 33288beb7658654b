"""Link files: PYNQ's own reader finds and downloads through them, and refuses what has another sum."""

from __future__ import annotations

import json
import tempfile
import threading
from collections.abc import Iterator
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from fastcar.overlays import load_engine
from fastcar.overlays.bitfile import read_bitfile, write_emulated_bitfile
from fastcar.overlays.design import block_design
from fastcar.overlays.hwh import handoff_text
from fastcar.overlays.links import md5sum, write_link, write_release_links
from fastcar.toolkit.errors import OverlayError, UsageError

SUM = "d41d8cd98f00b204e9800998ecf8427e"


def overlay(path: Path, engine: str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    design = block_design(load_engine(engine))
    write_emulated_bitfile(path, design)
    path.with_suffix(".hwh").write_text(handoff_text(design))
    return path


@pytest.fixture
def bitstreams(tmp_path: Path) -> dict[str, Path]:
    out = tmp_path / "out"
    return {"KV260": overlay(out / "kv260.bit", "kv260"), "ZCU104": overlay(out / "zcu 104.bit", "zcu104")}


class Quiet(SimpleHTTPRequestHandler):
    def log_message(self, *arguments: object) -> None:
        pass


@pytest.fixture
def server(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    monkeypatch.setenv("no_proxy", "127.0.0.1")
    with ThreadingHTTPServer(("127.0.0.1", 0), partial(Quiet, directory=str(tmp_path / "out"))) as serving:
        thread = threading.Thread(target=serving.serve_forever)
        thread.start()
        yield f"http://127.0.0.1:{serving.server_port}"
        serving.shutdown()
        thread.join()


@pytest.fixture
def setup_utils(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """PYNQ's; it leaves its temporary files behind."""
    pytest.importorskip("magic", reason="PYNQ's downloads need libmagic1", exc_type=ImportError)
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    return pytest.importorskip("pynqutils.setup_utils")


def test_pynq_downloads_a_release(bitstreams: dict[str, Path], server: str, setup_utils, tmp_path: Path) -> None:
    """For every device, as when a package is built."""
    package = tmp_path / "package"
    written = write_release_links(package, bitstreams, server + "/")
    assert [path.name for path in written] == ["fastcar.bit.link", "fastcar.hwh.link"]
    setup_utils.download_overlays(str(package), download_all=True, fail_at_lookup=True)
    for device, bit in bitstreams.items():
        for suffix in (".bit", ".hwh"):
            found = package / f"fastcar{suffix}.d/fastcar.{device}{suffix}"
            assert found.read_bytes() == bit.with_suffix(suffix).read_bytes()
    assert read_bitfile(package / "fastcar.bit.d/fastcar.KV260.bit").design.startswith("fastcar_")


def test_pynq_delivers_notebooks_with_the_files_of_the_device(
    bitstreams: dict[str, Path], setup_utils, tmp_path: Path
) -> None:
    package, out = tmp_path / "package", tmp_path / "delivered"
    write_release_links(package, bitstreams, (tmp_path / "out").as_uri())
    (package / "fastcar.ipynb").write_text("{}")
    setup_utils.deliver_notebooks("ZCU104", str(package), str(out), "fastcar", folder=True)
    assert sorted(file.name for file in (out / "fastcar").iterdir()) == ["fastcar.bit", "fastcar.hwh", "fastcar.ipynb"]
    assert (out / "fastcar/fastcar.bit").read_bytes() == bitstreams["ZCU104"].read_bytes()
    assert md5sum(out / "fastcar/fastcar.hwh") == md5sum(bitstreams["ZCU104"].with_suffix(".hwh"))


def test_pynq_refuses_another_sum(bitstreams: dict[str, Path], server: str, setup_utils, tmp_path: Path) -> None:
    package = tmp_path / "package"
    write_link(package / "fastcar.bit.link", {"KV260": (f"{server}/kv260.bit", SUM)})
    with pytest.raises(Exception, match="Incorrect checksum"):
        setup_utils.download_overlays(str(package), download_all=True, fail_at_lookup=True)
    assert [path.name for path in package.rglob("*") if path.is_file()] == ["fastcar.bit.link"]
    (package / "fastcar.ipynb").write_text("{}")
    setup_utils.deliver_notebooks("KV260", str(package), str(tmp_path / "delivered"), "fastcar")
    assert not (tmp_path / "delivered").exists()


def test_what_is_written(tmp_path: Path) -> None:
    path = tmp_path / "new/fastcar.bit.link"
    write_link(path, {"KV260": ("https://example.org/a.bit", SUM)})
    assert json.loads(path.read_text()) == {"KV260": {"url": "https://example.org/a.bit", "md5sum": SUM}}
    (tmp_path / "empty").touch()
    assert md5sum(tmp_path / "empty") == SUM


@pytest.mark.parametrize(
    ("name", "downloads", "found"),
    [
        ("fastcar.bit", {"KV260": ("https://example.org/a.bit", SUM)}, "not the name of a link file"),
        ("fastcar.link", {"KV260": ("https://example.org/a.bit", SUM)}, "not the name of a link file"),
        ("a.bit.link", {}, "no device"),
        ("a.bit.link", {"../KV260": ("https://example.org/a.bit", SUM)}, "device '../KV260'"),
        ("a.bit.link", {"KV260": ("example.org/a.bit", SUM)}, "address 'example.org/a.bit'"),
        ("a.bit.link", {"KV260": ("https://example.org/a.bit", SUM.upper())}, "MD5 sum"),
    ],
)
def test_unusable_links(name: str, downloads: dict[str, tuple[str, str]], found: str, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="expected") as caught:
        write_link(tmp_path / name, downloads)
    assert caught.value.found.startswith(found)
    assert list(tmp_path.iterdir()) == []


def test_files_that_do_not_belong_together(bitstreams: dict[str, Path], tmp_path: Path) -> None:
    links, url = tmp_path / "links", "https://example.org"
    other = overlay(tmp_path / "other/kv260.bit", "zcu104")
    with pytest.raises(UsageError, match="the name of two files"):
        write_release_links(links, bitstreams | {"ZCU106": other}, url)
    bitstreams["KV260"].with_suffix(".hwh").write_bytes(other.with_suffix(".hwh").read_bytes())
    with pytest.raises(OverlayError, match="of one build"):
        write_release_links(links, bitstreams, url)
    bitstreams["KV260"].with_suffix(".hwh").unlink()
    with pytest.raises(OverlayError, match="no such file"):
        write_release_links(links, bitstreams, url)
    assert not links.exists()


@pytest.mark.parametrize(
    "url",
    ["http://[bad/x", "https://", "http:///x", "https://a b/x", "file:", "https://x\ny", "https://a:99999/x", "", None],
)
def test_addresses_that_lead_nowhere(tmp_path: Path, url: str) -> None:
    with pytest.raises(UsageError, match="address"):
        write_link(tmp_path / "x.bit.link", {"KV260": (url, SUM)})
    assert not list(tmp_path.iterdir())
