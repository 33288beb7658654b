"""depth.onnx on difficult hidden states and all settings of sampling: the bits of ``predict_codes``."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from difficult_inputs import difficult_rows
from random_models import CODES, depth_config, random_depth_model, save_graph

from fastcar.toolkit.backends.onnxruntime import open_session
from fastcar.toolkit.numerics.depth import TEXT, predict_codes

SHAPES = {
    "3 codes": (depth_config(), 8),
    "3 codes, 4 bit": (depth_config(), 4),
    "1 code": (depth_config(codes_per_position=1, layers=1), 8),
    "shared, wide heads": (depth_config(heads=1, codes_per_position=8, shared_codebook=True, norm_eps=1e-6), 8),
    "odd": (depth_config(hidden=33, heads=11, mlp=7, code_dim=5, layers=4, codes_per_position=2), 8),
}
SETTINGS = [(1.0, 1.0, CODES, 65536), (3.5, 0.7, 5, 65536), (0.5, 1.3, CODES, 40000), (1.0, 1.0, 1, 65536)]


@pytest.fixture(scope="module", params=SHAPES)
def lowered(request, tmp_path_factory):
    depth, bits = SHAPES[request.param]
    model = random_depth_model(bits, depth=depth)
    path: Path = save_graph(model, tmp_path_factory.mktemp("depth"))
    return model, open_session(path.with_name("depth.onnx"), 1)


@pytest.mark.parametrize("guided", [True, False])
@pytest.mark.parametrize("clips", [1, 7])
@pytest.mark.parametrize(("guidance", "inverse_temperature", "top_k", "top_p"), SETTINGS)
def test_depth_graph(lowered, clips, guided, guidance, inverse_temperature, top_k, top_p):
    model, session = lowered
    rng, depth = np.random.default_rng(clips), model.depth.config.codes_per_position
    rows = clips * (2 if guided else 1)
    given = np.where(rng.random((clips, depth)) < 0.3, rng.integers(0, CODES, (clips, depth)), TEXT)
    first = np.arange(clips, dtype=np.int64)
    inputs = {
        "uniform": rng.choice([0, (1 << 24) - 1, *rng.integers(0, 1 << 24, 4)], (clips, depth)).astype(np.int64),
        "given": given.astype(np.int64),
        "conditional": first,
        "unconditional": first + rows - clips,
        "guidance": np.array(guidance, np.float32),
        "inverse_temperature": np.array(inverse_temperature, np.float32),
        "top_k": np.array(top_k, np.int64),
        "top_p": np.array(top_p, np.int64),
    }
    hidden = difficult_rows(rng, rows, model.config.hidden)
    with np.errstate(over="ignore"):
        expected = predict_codes(model, hidden, inputs)
    code, logits = session.run(["code", "logits"], {"hidden": hidden, "clip": np.tile(first, rows // clips), **inputs})
    np.testing.assert_array_equal(code, expected["code"])
    np.testing.assert_array_equal(logits.view(np.uint32), expected["logits"].view(np.uint32))
    assert (code[given != TEXT] == given[given != TEXT]).all()
