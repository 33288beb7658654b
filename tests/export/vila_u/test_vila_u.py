"""VILA-U checkpoints: the modules against a plain reading, and what is refused."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import vila_u_reference as reference
from safetensors.torch import load_file, save_file
from strong_weights import strengthened

from fastcar.export.shards import TensorStore
from fastcar.export.vila_u.config import read_config
from fastcar.export.vila_u.prompt import read_prompts
from fastcar.export.vila_u.synthetic import write_checkpoint
from fastcar.export.vila_u.weights import VilaUVision
from fastcar.toolkit.config import PADDING
from fastcar.toolkit.errors import CheckpointError, OutputError, UsageError
from fastcar.toolkit.numerics.sampling import guided_logits

HEADS = 4


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    write_checkpoint(tmp_path / "tiny", "tiny", shared=False)
    return tmp_path / "tiny"


def change(path: Path, **changes: Any) -> None:
    """Keys as a.b.c, their dots as two underscores."""
    content = json.loads(path.read_text())
    for name, value in changes.items():
        *parents, key = name.split("__")
        part = content
        for parent in parents:
            part = part[parent]
        part[key] = value
    path.write_text(json.dumps(content))


@pytest.mark.parametrize("shared", [False, True])
@pytest.mark.parametrize("projector", ["linear", "mlp2x_gelu", "mlp3x_gelu"])
def test_codes_and_hidden_states_become_the_logits_of_a_plain_reading(tmp_path, shared, projector):
    write_checkpoint(tmp_path / "c", "tiny", shared=shared, projector=projector)
    vision, layers = strengthened(tmp_path / "c/vision_tower"), strengthened(tmp_path / "c/mm_projector")
    loaded = VilaUVision(tmp_path / "c", read_config(tmp_path / "c"))
    generator = torch.Generator().manual_seed(1)
    codes, hidden = torch.randint(32, (6, 4), generator=generator), torch.randn(6, 64, generator=generator)
    embedding = loaded.embedding()
    logits = loaded.depth()(hidden, embedding.cumulative(codes))
    expected = reference.depth_logits(vision, hidden, codes, HEADS, shared)
    assert expected.std() > 0.1
    assert (logits - expected).abs().max() < 1e-4
    assert (embedding(codes) - reference.backbone_input(vision, layers, codes, shared)).abs().max() < 1e-4


@pytest.mark.parametrize("latent", [None, (6, 5)])
def test_pictures_are_those_of_a_plain_reading(folder, latent):
    change(folder / "vision_tower/config.json", rqvaesiglip__decoder_latent_shape=latent)
    vision = strengthened(folder / "vision_tower")
    loaded = VilaUVision(folder, read_config(folder))
    codes = torch.randint(32, (2, 4, 4, 4), generator=torch.Generator().manual_seed(2))
    found = loaded.pictures()(loaded.embedding().embed(codes).sum(-2))
    expected = reference.pictures(vision, codes, False, latent)
    assert expected.std() > 10
    assert (found - expected).abs().max() < 1e-2  # of 255; sums in another order
    assert ((found - expected).abs() / 127.5).max() < 1e-4


def test_pytorch_files_hold_the_same_as_safetensors(folder):
    before = VilaUVision(folder, read_config(folder)).depth().state_dict()
    path = folder / "vision_tower/model.safetensors"
    torch.save(load_file(path), path.with_name("pytorch_model.bin"))
    path.unlink()
    after = VilaUVision(folder, read_config(folder)).depth().state_dict()
    assert all(torch.equal(before[name], after[name]) for name in before)


def test_a_block_alone_is_that_of_the_whole(folder):
    loaded = VilaUVision(folder, read_config(folder))
    for index, whole in enumerate(loaded.depth().head_transformer.blocks):
        alone = loaded.block(index).state_dict()
        assert all(torch.equal(alone[name], value) for name, value in whole.state_dict().items())


def test_a_seed_tells_every_byte_and_a_folder_in_use_is_left_alone(folder, tmp_path):
    for name, seed in (("same", 0), ("other", 1)):
        write_checkpoint(tmp_path / name, "tiny", shared=False, seed=seed)
    file = "vision_tower/model.safetensors"
    assert (folder / file).read_bytes() == (tmp_path / "same" / file).read_bytes()
    assert (folder / file).read_bytes() != (tmp_path / "other" / file).read_bytes()
    with pytest.raises(OutputError, match="is not empty"):
        write_checkpoint(folder, "tiny")


def test_shards_have_an_index_and_the_same_values(folder, tmp_path):
    write_checkpoint(tmp_path / "sharded", "tiny", shared=False, shard_bytes=50_000)
    assert len(list((tmp_path / "sharded/llm").glob("model-*.safetensors"))) > 2
    for part in ("llm", "vision_tower", "mm_projector"):
        one, many = TensorStore(folder / part), TensorStore(tmp_path / "sharded" / part)
        assert set(one) == set(many)
        assert all(torch.equal(one.read(name), many.read(name)) for name in one)


def test_transformers_reads_the_synthetic_backbone(folder):
    from transformers import LlamaForCausalLM

    model, report = LlamaForCausalLM.from_pretrained(folder / "llm", output_loading_info=True)
    assert not report["missing_keys"] and not report["unexpected_keys"]
    stored = TensorStore(folder / "llm").read("lm_head.weight").float()
    assert torch.equal(model.lm_head.weight.float(), stored)


@pytest.mark.parametrize("name", ["rqtransformer.in_mlp_1.bias", "rqvaesiglip.quantizer.codebooks.3.weight"])
def test_a_missing_tensor_is_named(folder, name):
    path = folder / "vision_tower/model.safetensors"
    save_file({key: value for key, value in load_file(path).items() if key != name}, path)
    with pytest.raises(CheckpointError, match=f"{name} is missing"):
        VilaUVision(folder, read_config(folder))


def test_the_encoder_is_passed_over_and_anything_else_is_named(folder):
    path = folder / "vision_tower/model.safetensors"
    extra = torch.zeros(2)
    encoder = "rqvaesiglip.siglip_model.vision_model.post_layernorm.weight"
    save_file({**load_file(path), encoder: extra, "rqvaesiglip.logit_scale": extra.clone()}, path)
    VilaUVision(folder, read_config(folder))
    save_file({**load_file(path), "rqtransformer.more": extra}, path)
    with pytest.raises(CheckpointError, match=r"rqtransformer\.more is not part"):
        VilaUVision(folder, read_config(folder))


def test_a_value_that_is_no_number_and_unequal_shared_books_are_named(tmp_path):
    write_checkpoint(tmp_path / "c", "tiny", shared=True)
    path = tmp_path / "c/vision_tower/model.safetensors"
    stored, name = load_file(path), "rqvaesiglip.quantizer.codebooks.1.weight"
    save_file({**stored, name: stored[name.replace(".1.", ".0.")] + 1}, path)
    with pytest.raises(CheckpointError, match=f"{name} differs"):
        VilaUVision(tmp_path / "c", read_config(tmp_path / "c")).codebooks()
    stored["rqtransformer.pos_emb_d"][0, 1, 2] = torch.nan
    save_file(stored, path)
    with pytest.raises(CheckpointError, match=r"pos_emb_d\[0, 1, 2\] is nan"):
        VilaUVision(tmp_path / "c", read_config(tmp_path / "c")).depth()


@pytest.mark.parametrize(
    ("file", "changes", "found"),
    [
        ("config.json", {"model_type": "llava"}, "model_type 'llava'; expected one of 'vila_u_llama', 'vila_u'"),
        ("config.json", {"mm_use_vi_start_end": False}, "mm_use_vi_start_end False"),
        ("llm/config.json", {"architectures": ["GPT"]}, "expected one of LlamaForCausalLM"),
        ("mm_projector/config.json", {"mm_projector_type": "mlp1x_gelu"}, "mm_projector_type 'mlp1x_gelu'"),
        ("mm_projector/config.json", {"mm_projector_type": "identity"}, "expected one of linear, mlp2x_gelu"),
        ("vision_tower/config.json", {"model_type": "siglip"}, "expected one of 'rqvaesigliptransformer_model'"),
        ("vision_tower/config.json", {"rqtransformer__vocab_size": 31}, r"rqvaesiglip\.n_embed 32"),
        ("vision_tower/config.json", {"rqtransformer__block_size": [4, 4, 2]}, r"rqtransformer\.block_size"),
        ("vision_tower/config.json", {"rqtransformer__head__block__n_head": 5}, "multiple of heads 5"),
        ("vision_tower/config.json", {"rqvaesiglip__ddconfig__ch": 40}, r"ddconfig\.ch modulo 32 8; expected one of 0"),
        ("vision_tower/config.json", {"rqvaesiglip": {}}, r"rqvaesiglip\.embed_dim is missing"),
        ("vision_tower/config.json", {"rqvaesiglip": 3}, r"rqvaesiglip 3: Input should be"),
        (
            "vision_tower/config.json",
            {"rqvaesiglip__shared_codebook": "no"},
            r"rqvaesiglip\.shared_codebook 'no': Input",
        ),
        ("vision_tower/config.json", {"rqvaesiglip__code_shape": [4.0, 4, 4]}, r"code_shape\.0 4\.0: Input should be"),
        ("vision_tower/config.json", {"rqvaesiglip__code_shape": [4, 4]}, r"code_shape \[4, 4\]: List should have at"),
        ("vision_tower/config.json", {"rqvaesiglip__ddconfig__ch_mult": []}, r"ddconfig\.ch_mult \[\]: List should"),
        ("vision_tower/config.json", {"rqvaesiglip__ddconfig__ch": 1 << 30}, r"ddconfig\.ch 1073741824: Input should"),
        ("vision_tower/config.json", {"rqvaesiglip__ddconfig__out_ch": 1}, r"ddconfig\.out_ch 1: Input should be 3"),
        (
            "vision_tower/config.json",
            {"rqvaesiglip__ddconfig__resamp_with_conv": False},
            "resamp_with_conv False: Input",
        ),
        ("vision_tower/config.json", {"rqtransformer__head__n_layer": "2"}, r"head\.n_layer '2': Input should be"),
        ("vision_tower/config.json", {"rqtransformer__head__block__n_head": True}, r"n_head True: Input should be"),
        ("llm/config.json", {"rms_norm_eps": "1e-5"}, "rms_norm_eps '1e-5': Input should be"),
    ],
)
def test_what_is_not_understood_is_refused_by_its_key(folder, file, changes, found):
    change(folder / file, **changes)
    with pytest.raises(CheckpointError, match=found):
        read_config(folder)


@pytest.mark.parametrize("file", ["config.json", "llm/config.json", "vision_tower/config.json"])
@pytest.mark.parametrize("text", ["[]", "3", "null", "{", ""])
def test_a_config_that_is_none_is_refused_by_its_file(folder, file, text):
    (folder / file).write_text(text)
    with pytest.raises(CheckpointError, match=rf"/{file}: (no object|not JSON)"):
        read_config(folder)


@pytest.mark.parametrize(
    ("changes", "found"),
    [
        ({"rqtransformer__head__n_layer": 10**9}, r"blocks\.999999999\.\S+ is missing"),
        ({"rqvaesiglip__ddconfig__num_res_blocks": 10**9}, r"block\.1000000000\.\S+ is missing"),
    ],
)
def test_layers_that_are_not_there_are_not_listed_first(folder, changes, found):
    change(folder / "vision_tower/config.json", **changes)
    with pytest.raises(CheckpointError, match=found):
        VilaUVision(folder, read_config(folder))


def test_prompts_are_padded_in_front_and_end_with_the_start_of_a_video(folder):
    config = read_config(folder)
    prompts = read_prompts(folder, config)
    empty = len(prompts.tokens(""))
    rows = np.stack([prompts.encode("a red car", empty + 20), prompts.unconditional(empty + 20)])
    assert rows[:, -1].tolist() == [config.video_start] * 2 == [286, 286]
    assert (rows == PADDING).sum(1).tolist() == [20 - len(" a red car "), 20]
    assert rows[1, 20] == 1 and (rows[1, 20:] != PADDING).all()


def test_the_template_keeps_an_empty_turn_without_spaces(folder):
    prompts = read_prompts(folder, read_config(folder))
    assert prompts.text("a car ").endswith("questions. USER: a car ASSISTANT: <vi_start>")
    assert prompts.text(" ").endswith("questions. USER:ASSISTANT: <vi_start>")


def test_a_prompt_that_does_not_fit_is_empty_or_holds_a_special_token_is_refused(folder):
    prompts = read_prompts(folder, read_config(folder))
    with pytest.raises(UsageError, match="at most 20"):
        prompts.encode("a car", 20)
    with pytest.raises(UsageError, match="'<vi_end>' in it"):
        prompts.encode("a car <vi_end>", 300)
    with pytest.raises(UsageError, match=r"'bad.udcff'; expected text in UTF-8"):
        prompts.encode("bad\udcff", 300)
    with pytest.raises(UsageError, match="an empty prompt"):
        prompts.encode("  ", 300)


def test_a_tokenizer_of_another_vocabulary_or_none_is_refused(folder):
    path = folder / "llm/tokenizer.json"
    config = read_config(folder)
    content = path.read_text()
    path.write_text(content.replace("<vi_start>", "<other>"))
    with pytest.raises(CheckpointError, match=r"<vi_start> is token \d+; expected token 286"):
        read_prompts(folder, config)
    path.write_text(content[:-20])
    with pytest.raises(CheckpointError, match=r"tokenizer\.json: cannot be read"):
        read_prompts(folder, config)
    path.unlink()
    with pytest.raises(CheckpointError, match=r"tokenizer\.json: is missing"):
        read_prompts(folder, config)


@pytest.mark.parametrize("token", [-1, 288, 10**30, True, 1.0, None, "1"])
def test_a_first_token_that_is_none_is_refused(folder, token):
    change(folder / "llm/config.json", bos_token_id=token)
    with pytest.raises(CheckpointError, match=r"llm/config\.json: bos_token_id .+; expected a token below 288"):
        read_prompts(folder, read_config(folder))


def test_guidance_is_the_release_s():
    conditional, unconditional = np.array([[1.0, 2.0]], np.float32), np.array([[0.5, 3.0]], np.float32)
    np.testing.assert_array_equal(guided_logits(conditional, unconditional, 3.0), [[2.0, 0.0]])
