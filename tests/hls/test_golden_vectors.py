"""The golden vectors' file format, read back here by its description."""

from __future__ import annotations

import struct
from collections import Counter

import numpy as np
import pytest

from fastcar.hls.golden import KERNELS, encoded, golden_cases, write_golden


class Reader:
    def __init__(self, data: bytes) -> None:
        self.data, self.at = data, 0

    def take(self, size: int) -> bytes:
        assert self.at + size <= len(self.data), "cut short"
        self.at += size
        return self.data[self.at - size : self.at]

    def number(self) -> int:
        return struct.unpack("<I", self.take(4))[0]

    def text(self) -> str:
        return self.take(self.number()).decode()

    def array(self) -> np.ndarray:
        kind = np.dtype(self.text())
        return np.frombuffer(self.take(self.number() * kind.itemsize), kind)


@pytest.mark.parametrize("kernel", sorted(KERNELS))
def test_file_holds_the_cases(kernel, tmp_path):
    path = write_golden(tmp_path, (kernel,))[kernel]
    assert path == tmp_path / f"{kernel}.golden" and list(tmp_path.iterdir()) == [path]
    reader = Reader(path.read_bytes())
    assert reader.take(8) == b"FCGOLDEN" and reader.text() == kernel
    cases = golden_cases(kernel)
    assert cases and reader.number() == len(cases)
    for name, arrays in cases.items():
        assert reader.text() == name and reader.number() == len(arrays)
        for key, array in arrays.items():
            assert reader.text() == key
            read = reader.array()
            assert read.dtype == array.dtype and array.size
            np.testing.assert_array_equal(read, array.reshape(-1))
    assert reader.at == len(reader.data)


@pytest.mark.parametrize("kernel", sorted(KERNELS))
def test_cases_repeat_and_their_names_do_not(kernel):
    assert encoded(kernel, golden_cases(kernel)) == encoded(kernel, golden_cases(kernel))
    names = Counter(name for name, _ in KERNELS[kernel](np.random.default_rng(0)))
    assert max(names.values()) == 1 and len(names) == len(golden_cases(kernel))


def test_seeds_differ():
    """No kernel is tested with another one's random numbers."""
    assert not np.array_equal(golden_cases("swiglu")["random"]["gate"][:2000], golden_cases("gelu")["random"]["x"])


def test_all_kernels_are_written_by_default(tmp_path):
    assert {path.stem for path in write_golden(tmp_path / "new").values()} == set(KERNELS)


def test_big_endian_arrays_are_written_little_endian():
    data = encoded("drs", {"one": {"word": np.array([1], ">u4")}})
    assert data.endswith(struct.pack("<I", 1)) and b"<u4" in data
