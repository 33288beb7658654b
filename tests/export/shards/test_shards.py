"""Checkpoint folders as `transformers` and `safetensors` write them, and damaged ones."""

from __future__ import annotations

import json
import os
import pickle
import struct
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file
from transformers import LlamaConfig, LlamaForCausalLM

from fastcar.export.shards import TensorStore, check_tensors, read_finite
from fastcar.export.shards.header import DTYPES, read_header
from fastcar.toolkit.errors import CheckpointError

FIX = "Mend it."
INDEX = "model.safetensors.index.json"


@pytest.fixture(scope="module")
def model() -> LlamaForCausalLM:
    torch.manual_seed(0)
    sizes = {"hidden_size": 64, "intermediate_size": 96, "num_hidden_layers": 3, "num_attention_heads": 4}
    return LlamaForCausalLM(LlamaConfig(vocab_size=80, num_key_value_heads=2, **sizes)).bfloat16()


@pytest.fixture
def sharded(model: LlamaForCausalLM, tmp_path: Path) -> Path:
    """As transformers shards it."""
    folder = tmp_path / "sharded model"
    model.save_pretrained(folder, max_shard_size="60KB")
    assert len(list(folder.glob("*.safetensors"))) > 2
    return folder


def shards(folder: Path) -> list[Path]:
    return sorted(folder.glob("*.safetensors"))


def equal(store: TensorStore, model: LlamaForCausalLM) -> None:
    expected = model.state_dict()
    assert set(store) == set(expected)
    for name, tensor in expected.items():
        found = store.read(name)
        assert found.dtype == tensor.dtype == store.tensors[name].dtype
        assert store.tensors[name].shape == tuple(tensor.shape)
        assert torch.equal(found, tensor)
    assert store.bytes == sum(tensor.nbytes for tensor in expected.values())


def test_shards_with_their_index(sharded: Path, model: LlamaForCausalLM) -> None:
    (sharded / "consolidated.00.safetensors").write_bytes(b"of another layout, and not in the index")
    equal(TensorStore(sharded), model)


def test_one_file(model: LlamaForCausalLM, tmp_path: Path) -> None:
    model.save_pretrained(tmp_path)
    equal(TensorStore(tmp_path), model)
    equal(TensorStore(tmp_path / "model.safetensors"), model)
    (tmp_path / "model.safetensors").rename(tmp_path / "weights.safetensors")
    equal(TensorStore(tmp_path), model)


def test_files_of_torch(model: LlamaForCausalLM, tmp_path: Path) -> None:
    state = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    names = list(state)
    parts = {"pytorch_model-00001-of-00002.bin": names[:9], "pytorch_model-00002-of-00002.bin": names[9:]}
    for file, own in parts.items():
        torch.save({name: state[name] for name in own}, tmp_path / file)
    index = {"weight_map": {name: file for file, own in parts.items() for name in own}}
    (tmp_path / "pytorch_model.bin.index.json").write_text(json.dumps(index))
    equal(TensorStore(tmp_path), model)


@pytest.mark.parametrize("name", DTYPES)
def test_every_dtype(name: str, tmp_path: Path) -> None:
    tensor = torch.zeros(3, 5).to(DTYPES[name])
    save_file({"a": tensor, "b": torch.ones(2), "empty": torch.zeros(0, 4)}, tmp_path / "a.safetensors")
    store = TensorStore(tmp_path)
    assert store.read("a").dtype == DTYPES[name] and store.read("a").shape == (3, 5)
    assert store.read("empty").shape == (0, 4)


def cut(path: Path, size: int) -> None:
    os.truncate(path, path.stat().st_size + size)


def edit_index(folder: Path, change: Callable[[dict], None]) -> None:
    index = json.loads((folder / INDEX).read_text())
    change(index["weight_map"])
    (folder / INDEX).write_text(json.dumps(index))


def swap(names: dict[str, str]) -> None:
    low, *_, high = sorted(names, key=lambda name: names[name])
    names[low], names[high] = names[high], names[low]


def edit_header(path: Path, change: Callable[[dict], None]) -> None:
    content = path.read_bytes()
    size = int.from_bytes(content[:8], "little")
    header = json.loads(content[8 : 8 + size])
    change(header)
    text = json.dumps(header).encode()
    path.write_bytes(struct.pack("<Q", len(text)) + text + content[8 + size :])


def shifted(header: dict) -> None:
    name = next(name for name in header if name != "__metadata__")
    header[name]["data_offsets"] = [offset + 2 for offset in header[name]["data_offsets"]]


def repeat(folder: Path) -> None:
    """A tensor of the first shard, with other values, in the last one as well."""
    low, high = shards(folder)[0], shards(folder)[-1]
    name, tensor = next(iter(load_file(low).items()))
    save_file({**load_file(high), name: tensor + 1}, high)


def whole_too(folder: Path) -> None:
    save_file({"a": torch.ones(1)}, folder / "model.safetensors")


def entry(**changes: object) -> Callable[[Path], None]:
    return lambda folder: edit_header(shards(folder)[0], lambda header: first(header).update(changes))


def first(header: dict) -> dict:
    return next(entry for name, entry in header.items() if name != "__metadata__")


DAMAGE: dict[str, tuple[Callable[[Path], object], str]] = {
    "shard missing": (lambda folder: shards(folder)[1].unlink(), r"index.json: names model-00002-of-\d+.safetensors"),
    "one byte short": (lambda folder: cut(shards(folder)[0], -1), r"00001-of-.*bytes of tensors, cut short; expected"),
    "a byte too many": (
        lambda folder: cut(shards(folder)[0], 1),
        r"00001-of-.*bytes of tensors; expected [\d,]+ bytes",
    ),
    "empty": (lambda folder: os.truncate(shards(folder)[0], 0), "is cut short, or no safetensors file: 0 bytes"),
    "header cut": (lambda folder: os.truncate(shards(folder)[0], 40), "is cut short, or no safetensors file: 40 bytes"),
    "no safetensors": (lambda folder: shards(folder)[0].write_bytes(b"<html>" * 99), "is cut short, or no safetensors"),
    "header of others": (lambda folder: edit_header(shards(folder)[0], shifted), r"tensor \S+ lies at bytes 2 to"),
    "shape of others": (
        lambda folder: edit_header(shards(folder)[0], lambda h: first(h)["shape"].append(2)),
        r"tensor \S+ lies at bytes 0 to .*its shape \(\d+, \d+, 2\)",
    ),
    "dtype of nobody": (lambda folder: edit_header(shards(folder)[0], lambda h: first(h).update(dtype="F4")), "is F4;"),
    "header of nothing": (
        lambda folder: edit_header(shards(folder)[0], lambda h: first(h).clear()),
        "header is damaged",
    ),
    "sizes in words": (entry(shape=["80", "64"]), "header is damaged .*hold what is no size"),
    "sizes in fractions": (entry(shape=[80.5, 64]), "header is damaged .*hold what is no size"),
    "offsets below 0": (entry(data_offsets=[-2, 4]), "header is damaged .*hold what is no size"),
    "notes of numbers": (
        lambda folder: edit_header(shards(folder)[0], lambda header: header.update(__metadata__={"format": 3})),
        "header is damaged .*no text",
    ),
    "in two shards": (
        repeat,
        r"index.json: tensor \S+ in model-00001-\S+ and in model-\S+; expected each tensor in one",
    ),
    "one file as well": (whole_too, "model.safetensors and model.safetensors.index.json: weights in one file, and in"),
    "wrong shard": (lambda folder: edit_index(folder, swap), r"index.json: tensor \S+ in \S+, but it is in \S+;"),
    "not in the index": (
        lambda folder: edit_index(folder, lambda names: names.pop(next(iter(names)))),
        r"index.json: lacks tensor \S+ of model-",
    ),
    "in no shard": (
        lambda folder: edit_index(folder, lambda names: names.update(more=next(iter(names.values())))),
        r"tensor more in model-\S+, but none of the shards has it",
    ),
    "no index": (lambda folder: (folder / INDEX).unlink(), r"files \(model-00001.*\) and no model.safetensors.index"),
    "index of nothing": (lambda folder: (folder / INDEX).write_text("[]"), "index.json: is damaged"),
    "index of no name": (
        lambda folder: edit_index(folder, lambda names: names.update({next(iter(names)): "x" * 5000})),
        "index.json: names x+, which is not there",
    ),
    "index elsewhere": (
        lambda folder: edit_index(folder, lambda names: names.update({next(iter(names)): "../x.safetensors"})),
        r"in '../x.safetensors'; expected the name of a file beside it",
    ),
}


@pytest.mark.parametrize("kind", DAMAGE)
def test_damage_is_found_before_anything_is_read(kind: str, sharded: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    damage, told = DAMAGE[kind]
    damage(sharded)
    monkeypatch.setattr("fastcar.export.shards.store.safe_open", lambda *_, **__: pytest.fail("nothing may be read"))
    with pytest.raises(CheckpointError, match=told):
        TensorStore(sharded)


def test_no_checkpoint(tmp_path: Path) -> None:
    with pytest.raises(CheckpointError, match="no weights in it; expected model.safetensors or pytorch_model.bin"):
        TensorStore(tmp_path)
    with pytest.raises(CheckpointError, match="no such folder"):
        TensorStore(tmp_path / "none")


class Payload:
    def __reduce__(self):
        return os.mkdir, (os.environ["EXECUTED"],)


def test_what_a_pickle_brings_is_not_executed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("EXECUTED", str(tmp_path / "executed"))
    torch.save({"a": torch.ones(1), "b": Payload()}, tmp_path / "pytorch_model.bin")
    with pytest.raises(CheckpointError, match="holds more than tensors, or is damaged; it was not executed"):
        TensorStore(tmp_path)
    (tmp_path / "pytorch_model.bin").write_bytes(pickle.dumps(Payload()))
    with pytest.raises(CheckpointError):
        TensorStore(tmp_path)
    assert not (tmp_path / "executed").exists()


def test_what_is_refused_of_a_pickle_is_named_without_the_advice_to_let_it_through(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("EXECUTED", str(tmp_path / "executed"))
    torch.save({"b": Payload()}, tmp_path / "pytorch_model.bin")
    with pytest.raises(CheckpointError) as caught:
        TensorStore(tmp_path)
    assert "mkdir" in str(caught.value) and "weights_only" not in str(caught.value)


def test_a_file_of_torch_before_zip_archives(tmp_path: Path) -> None:
    torch.save({"a": torch.ones(1)}, tmp_path / "pytorch_model.bin", _use_new_zipfile_serialization=False)
    with pytest.raises(CheckpointError, match="One of torch before 1.6 has to be loaded and saved anew"):
        TensorStore(tmp_path)


@pytest.mark.parametrize("kind", ["sparse", "meta"])
def test_tensors_of_torch_that_are_no_values(kind: str, tmp_path: Path) -> None:
    tensor = torch.eye(3).to_sparse() if kind == "sparse" else torch.eye(3, device="meta")
    torch.save({"a": tensor}, tmp_path / "pytorch_model.bin")
    with pytest.raises(CheckpointError, match=r"tensor a is (of layout torch.sparse_coo|without values); expected val"):
        TensorStore(tmp_path)


def test_what_is_read_is_the_caller_s_to_change(tmp_path: Path) -> None:
    """Parameters, one value everywhere, one tensor under two names: the second reading is the first."""
    one = torch.nn.Parameter(torch.arange(6.0).reshape(2, 3))
    stored = {"a": one, "b": one, "c": torch.ones(1, 3).expand(2, 3)}
    torch.save(stored, tmp_path / "pytorch_model.bin")
    store = TensorStore(tmp_path)
    for name in store:
        read = store.read(name)
        assert not read.requires_grad and read.is_contiguous()
        read.mul_(-7)
    for name, tensor in stored.items():
        assert torch.equal(store.read(name), tensor)


def test_a_folder_that_is_called_like_a_file(model: LlamaForCausalLM, tmp_path: Path) -> None:
    for name in ("llama.bin", "llama.safetensors"):
        model.save_pretrained(tmp_path / name)
        equal(TensorStore(tmp_path / name), model)


@pytest.mark.parametrize("content", [b"", b"PK\x03\x04 cut short", [torch.ones(1)], {"a": 3}])
def test_no_file_of_tensors(content: object, tmp_path: Path) -> None:
    path = tmp_path / "pytorch_model.bin"
    if isinstance(content, bytes):
        path.write_bytes(content)
    else:
        torch.save(content, path)
    with pytest.raises(CheckpointError, match=r"pytorch_model.bin: .*expected a file of tensors"):
        TensorStore(tmp_path)


def test_tensors_that_a_model_needs(sharded: Path, model: LlamaForCausalLM) -> None:
    store = TensorStore(sharded)
    expected = {name: tuple(tensor.shape) for name, tensor in model.state_dict().items()}
    check_tensors(store, expected, FIX)
    with pytest.raises(CheckpointError, match=r"tensor more is missing; expected \(1,\). Mend it."):
        check_tensors(store, expected | {"more": (1,)}, FIX)
    with pytest.raises(CheckpointError, match=r"tensor model.norm.weight is \(64,\); expected \(65,\)"):
        check_tensors(store, expected | {"model.norm.weight": (65,)}, FIX)
    less = {name: shape for name, shape in expected.items() if name != "lm_head.weight"}
    with pytest.raises(CheckpointError, match=r"model-.*: tensor lm_head.weight is not part of the model"):
        check_tensors(store, less, FIX)
    check_tensors(store, less, FIX, ignored=r"lm_head\..*")


def test_numbers_that_are_none(tmp_path: Path) -> None:
    bad = torch.zeros(4, 3, dtype=torch.bfloat16)
    bad[2, 1] = float("inf")
    save_file({"a": bad, "b": torch.zeros(2, dtype=torch.int32)}, tmp_path / "model.safetensors")
    store = TensorStore(tmp_path)
    with pytest.raises(CheckpointError, match=r"model.safetensors: a\[2, 1\] is inf; expected finite numbers only"):
        read_finite(store, "a", FIX)
    with pytest.raises(CheckpointError, match="tensor b is torch.int32; expected floating point"):
        check_tensors(store, {"a": (4, 3), "b": (2,)}, FIX)


def test_floating_point_that_no_model_is_computed_in(tmp_path: Path) -> None:
    tensors = {"a": torch.ones(3).to(torch.float8_e4m3fn), "b": torch.tensor([1e38, 1e300], dtype=torch.float64)}
    save_file(tensors, tmp_path / "model.safetensors")
    store = TensorStore(tmp_path)
    with pytest.raises(
        CheckpointError, match="tensor a is torch.float8_e4m3fn; expected floating point: torch.float16"
    ):
        check_tensors(store, {"a": (3,), "b": (2,)}, FIX)
    with pytest.raises(CheckpointError, match=r"b\[1\] is inf; expected finite numbers only, in float32"):
        read_finite(store, "b", FIX)


def test_reading_holds_one_tensor(tmp_path: Path) -> None:
    """Files are mapped: what was read before and let go of does not stay."""
    save_file({f"t{i}": torch.full((1 << 20,), float(i)) for i in range(20)}, tmp_path / "model.safetensors")
    store = TensorStore(tmp_path)
    assert len(read_header(tmp_path / "model.safetensors")) == 20

    def held() -> int:
        fields = Path("/proc/self/status").read_text().split()
        return int(fields[fields.index("RssAnon:") + 1])

    before = held()
    for name in store:
        assert store.read(name)[0] == float(name[1:])
    assert held() - before < 24_000, "kB; all of it would be 80,000"


def test_tensors_without_a_name(tmp_path: Path) -> None:
    torch.save({0: torch.zeros(2)}, tmp_path / "pytorch_model.bin")
    with pytest.raises(CheckpointError, match="is no dictionary of tensors"):
        TensorStore(tmp_path)
