"""A bundle opens only when every file is what the manifest says; errors name the file, what was expected, the fix."""

from __future__ import annotations

import hashlib
import json
import os
import zipfile
from collections.abc import Callable
from pathlib import Path

import pytest
from car_like import BACKBONE as SHAPE
from car_like import LAYOUT, copy_of, edit_manifest, rehash

from fastcar.toolkit.bundle.bundle import (
    BACKBONE,
    DECODER,
    GOLDEN,
    GOLDEN_NODES,
    MANIFEST,
    REQUIRED,
    TOKENIZER,
    WEIGHTS,
    Bundle,
)
from fastcar.toolkit.bundle.manifest import SCHEMA, Manifest
from fastcar.toolkit.errors import BundleError, OutputError


@pytest.fixture
def copy(bundle_w8a8: Path, tmp_path: Path) -> Path:
    return copy_of(bundle_w8a8, tmp_path / "copy")


@pytest.fixture(autouse=True)
def temporary(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where archives are unpacked: nothing of an earlier run, nothing left for a later one."""
    folder = tmp_path / "temporary"
    folder.mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(folder))
    return folder


def refused(path: Path, *words: str) -> BundleError:
    """The error of opening ``path``: all of ``words`` in one sentence that has a fix at its end."""
    with pytest.raises(BundleError) as caught:
        Bundle.open(path)
    error = caught.value
    for word in words:
        assert word in str(error), f"{word!r} in {error}"
    assert error.expected and error.fix.endswith(("again.", "version.", "DIR", "file?")), error.fix
    assert "\n" not in error.fix + error.expected
    return error


def test_bundle_opens_and_names_every_file(bundle_w8a8: Path):
    bundle = Bundle.open(bundle_w8a8)
    on_disk = {str(file.relative_to(bundle_w8a8)) for file in bundle_w8a8.rglob("*") if file.is_file()}
    assert on_disk == {MANIFEST, *bundle.manifest.files}
    assert {*REQUIRED, GOLDEN_NODES} == set(bundle.manifest.files)
    assert bundle.manifest.frame_layout == LAYOUT
    assert bundle.prompts.phrases[1] == "left turn"
    for name, entry in bundle.manifest.files.items():
        content = (bundle_w8a8 / name).read_bytes()
        assert (entry.sha256, entry.bytes) == (hashlib.sha256(content).hexdigest(), len(content))


def test_archive_round_trip(bundle_w8a8: Path, tmp_path: Path, temporary: Path):
    archive = Bundle.open(bundle_w8a8).archive(tmp_path / "new" / "car.fastcar")
    assert [file.name for file in archive.parent.iterdir()] == ["car.fastcar"]
    opened = Bundle.open(archive)
    assert opened.path.parent == temporary
    for name in (MANIFEST, *opened.manifest.files):
        assert (opened.path / name).read_bytes() == (bundle_w8a8 / name).read_bytes()
    assert Bundle.open(archive).path == opened.path
    assert len(list(temporary.iterdir())) == 1


def test_archive_is_unpacked_again_when_its_copy_was_altered(bundle_w8a8: Path, tmp_path: Path, temporary: Path):
    archive = Bundle.open(bundle_w8a8).archive(tmp_path / "a")
    flip_byte(Bundle.open(archive).path / WEIGHTS)
    assert Bundle.open(archive).path.parent == temporary
    (Bundle.open(archive).path / DECODER).unlink()
    edit_manifest(Bundle.open(archive).path, name="another")
    assert Bundle.open(archive).manifest.name == "car-like"
    assert len(list(temporary.iterdir())) == 1


def cut(path: Path) -> None:
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])


def flip_byte(path: Path) -> None:
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes(content)


@pytest.mark.parametrize(
    ("damage", "words"),
    [
        (cut, ("not a zip file",)),
        (flip_byte, ()),
        (lambda path: path.write_bytes(b""), ("not a zip file",)),
        (lambda path: path.write_text("a shopping list"), ("not a zip file",)),
        (lambda path: zipfile.ZipFile(path, "w").close(), (MANIFEST,)),
    ],
)
def test_damaged_archive_is_refused_and_leaves_nothing(
    bundle_w8a8: Path, tmp_path: Path, temporary: Path, damage: Callable[[Path], None], words: tuple[str, ...]
):
    archive = Bundle.open(bundle_w8a8).archive(tmp_path / "car.fastcar")
    damage(archive)
    refused(archive, "car.fastcar", *words)
    assert not list(temporary.iterdir())


def test_archive_that_cannot_be_written(bundle_w8a8: Path, tmp_path: Path):
    (tmp_path / "file").write_text("")
    bundle = Bundle.open(bundle_w8a8)
    for target in (tmp_path / "file" / "a", tmp_path, Path("/proc/a")):
        with pytest.raises(OutputError, match=str(target)):
            bundle.archive(target)
    assert {file.name for file in tmp_path.iterdir()} == {"file", "temporary"}


@pytest.mark.parametrize("name", REQUIRED)
def test_missing_file(copy: Path, name: str):
    (copy / name).unlink()
    refused(copy, str(copy / name), "missing", "bytes", "Copy the bundle again")


@pytest.mark.parametrize("name", REQUIRED)
def test_truncated_file(copy: Path, name: str):
    size = (copy / name).stat().st_size
    cut(copy / name)
    refused(copy, str(copy / name), f"{size // 2} bytes", f"expected {size} bytes", "Copy the bundle again")


@pytest.mark.parametrize("name", REQUIRED)
def test_altered_file(copy: Path, name: str):
    expected = Bundle.open(copy).manifest.files[name].sha256
    flip_byte(copy / name)
    refused(copy, str(copy / name), "sha256", expected[:12], "altered")


def test_truncation_is_told_before_an_alteration_elsewhere(copy: Path):
    flip_byte(copy / BACKBONE)
    cut(copy / WEIGHTS)
    refused(copy, WEIGHTS, "bytes")


def test_wrong_hash_in_the_manifest(copy: Path):
    files = json.loads((copy / MANIFEST).read_text())["files"]
    files[TOKENIZER]["sha256"] = "0" * 64
    edit_manifest(copy, files=files)
    refused(copy, TOKENIZER, "expected 000000000000")


def test_without_verification_the_manifest_is_still_read(copy: Path):
    flip_byte(copy / WEIGHTS)
    assert Bundle.open(copy, verify=False).manifest.name == "car-like"


@pytest.mark.parametrize("path", ["nowhere", "nowhere/deeper", "file/below"])
def test_no_such_bundle(tmp_path: Path, path: str):
    (tmp_path / "file").write_text("")
    refused(tmp_path / path, str(tmp_path / path), "no such folder", "fastcar export")


def test_folder_without_manifest(tmp_path: Path):
    refused(tmp_path, str(tmp_path / MANIFEST), "no such file", "fastcar export")
    (tmp_path / MANIFEST).mkdir()
    refused(tmp_path, str(tmp_path / MANIFEST), "cannot be read")


@pytest.mark.parametrize(
    ("text", "word"),
    [
        ("", "manifest"),
        ("not JSON", "manifest"),
        ("[]", "object"),
        ("null", "object"),
        ("{}", "name"),
        ('{"schema": 1}', "name"),
        ('{"name": "car"', "manifest"),
        ("[" * 100_000, "manifest"),
    ],
)
def test_manifest_that_is_none(copy: Path, text: str, word: str):
    (copy / MANIFEST).write_text(text)
    refused(copy, str(copy / MANIFEST), word, f"expected a manifest of schema {SCHEMA}")


def test_a_manifest_that_does_not_say_what_became_of_the_heads_means_the_mean(copy: Path):
    text = json.loads((copy / MANIFEST).read_text())
    del text["tas_heads"]
    (copy / MANIFEST).write_text(json.dumps(text))
    opened = Bundle.open(copy)
    assert opened.manifest.tas_heads == opened.model()[0].tas_heads == "mean"


def test_manifest_that_is_not_text(copy: Path):
    (copy / MANIFEST).write_bytes(b"\xff\xfe\x00")
    refused(copy, str(copy / MANIFEST))


@pytest.mark.parametrize("schema", [0, 2, "1", None])
def test_another_schema_is_told_whatever_else_differs(copy: Path, schema: object):
    edit_manifest(copy, schema=schema, a_field_of_that_schema=1)
    refused(copy, str(copy / MANIFEST), f"schema {schema!r}", f"expected schema {SCHEMA}", "Export again")


@pytest.mark.parametrize(
    ("changes", "word"),
    [
        ({"surprise": 1}, "surprise"),
        ({"tas_query": "mid_rope"}, "tas_query"),
        ({"tas_heads": "median"}, "tas_heads"),
        ({"tas_head_weights": [[1.0] * SHAPE.heads]}, "tas_head_weights are not"),
        ({"tas_head_weights": [[1.0] * SHAPE.heads, [1.0] * (SHAPE.heads - 1)]}, "tas_head_weights are not"),
        ({"tas_head_weights": [[1.0] * SHAPE.heads, [0.0] * SHAPE.heads]}, "zeros alone"),
        ({"tas_head_weights": [[1.0] * SHAPE.heads, ["NaN"] + [1.0] * (SHAPE.heads - 1)]}, "not finite"),
        ({"tas_head_weights": [[1.0] * SHAPE.heads] * 2, "tas_heads": "max"}, "only a mean is weighted"),
        ({"tas_unit": [1.0]}, "tas_unit has 1 values"),
        ({"tas_unit": [1.0, -1.0]}, "tas_unit"),
        ({"thresholds": [None]}, "thresholds has 1 values"),
        ({"frame_rate": 0}, "frame_rate"),
        ({"config": {"hidden": 32}}, "config.layers"),
        ({"sampling": {"temperature": -1}}, "temperature"),
        ({"frame_layout": {**LAYOUT.model_dump(), "codes": 1000}}, "vocabulary"),
        ({"frame_layout": {**LAYOUT.model_dump(), "frames": 0}}, "frame_layout.frames"),
    ],
)
def test_manifest_that_contradicts_itself(copy: Path, changes: dict, word: str):
    edit_manifest(copy, **changes)
    refused(copy, str(copy / MANIFEST), word)


@pytest.mark.parametrize("name", ["../../etc/passwd", "golden/../../x", "/etc/passwd"])
def test_file_names_stay_inside(copy: Path, name: str):
    files = json.loads((copy / MANIFEST).read_text())["files"]
    edit_manifest(copy, files={**files, name: {"sha256": "0" * 64, "bytes": 1}})
    refused(copy, str(copy / MANIFEST), name, "names inside the bundle")


@pytest.mark.parametrize("name", REQUIRED)
def test_every_required_file_has_an_entry(copy: Path, name: str):
    files = json.loads((copy / MANIFEST).read_text())["files"]
    del files[name]
    edit_manifest(copy, files=files)
    refused(copy, str(copy / MANIFEST), f"no entry for {name}")


def test_forged_prompts_are_refused(copy: Path):
    (copy / TOKENIZER).write_text("{}")
    rehash(copy, TOKENIZER)
    with pytest.raises(BundleError, match=TOKENIZER):
        _ = Bundle.open(copy).prompts


def test_infinite_thresholds_survive_the_manifest(copy: Path):
    manifest = Bundle.open(copy).manifest.model_copy(update={"thresholds": (float("-inf"), None)})
    manifest.write(copy / MANIFEST)
    json.loads((copy / MANIFEST).read_text(), parse_constant=lambda text: pytest.fail(f"{text} is not JSON"))
    assert Manifest.read(copy / MANIFEST) == manifest


def test_a_link_to_a_bundle_opens(bundle_w8a8: Path, tmp_path: Path):
    os.symlink(bundle_w8a8, tmp_path / "link")
    assert Bundle.open(tmp_path / "link").manifest.name == "car-like"
    assert Bundle.open(str(tmp_path / "link") + "/").path.is_dir()


def test_golden_lies_in_its_own_folder():
    assert Path(GOLDEN).parts == ("golden", "clip.safetensors")
