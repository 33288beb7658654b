"""What a VQGAN decoder of published size costs: seconds a frame of 256 x 256 pixels, and memory."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import onnx_ir as ir
import pytest
from vqgan_like import random_vqgan

from fastcar.export.decoder import quantize_decoder
from fastcar.export.lower.decoder import lower_decoder

PUBLISHED = {
    "widths": (512, 256, 256, 128, 128),
    "blocks": 2,
    "attention_levels": (0,),
    "embedding": 256,
    "codes": 16384,
    "codebooks": 1,
    "code_shape": (16, 16),
}
PROGRAM = """
import json, re, sys, time
from pathlib import Path
from types import SimpleNamespace
import numpy as np
from fastcar.toolkit.video.decode import FrameDecoder

megabytes = lambda: int(re.search(r"VmHWM:\\s*(\\d+)", Path("/proc/self/status").read_text())[1]) / 1024
import onnxruntime
before, start = megabytes(), time.perf_counter()
decode = FrameDecoder(SimpleNamespace(path=Path(sys.argv[1])))
loaded, load_seconds = megabytes() - before, time.perf_counter() - start
codes, seconds = np.random.default_rng(0).integers(0, 16384, (1, 16, 16, 4)), []
for _ in range(3):
    start = time.perf_counter()
    assert decode(codes).shape == (1, 256, 256, 3)
    seconds.append(time.perf_counter() - start)
made = {"seconds_a_frame": min(seconds), "load_seconds": load_seconds}
print(json.dumps(made | {"megabytes_loaded": loaded, "megabytes_peak": megabytes() - before}))
"""


def test_a_frame_of_published_size(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Weights are held as bytes, at most as often as the file's and the session's; maps take less than 1 GB."""
    path = tmp_path / "decoder.onnx"
    ir.save(lower_decoder(quantize_decoder(random_vqgan(**PUBLISHED))), path)
    command = [sys.executable, "-c", PROGRAM, str(tmp_path)]
    ran = subprocess.run(command, capture_output=True, text=True, cwd=tmp_path.anchor)
    assert ran.returncode == 0, ran.stderr
    measured = json.loads(ran.stdout) | {"megabytes_on_disk": path.stat().st_size / 2**20}
    with capsys.disabled():
        print("\n" + json.dumps({name: round(value, 2) for name, value in measured.items()}))
    assert measured["megabytes_loaded"] < 3 * measured["megabytes_on_disk"]
    assert measured["megabytes_peak"] < 1024
