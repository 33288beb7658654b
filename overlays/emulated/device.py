"""A ``pynq.Device`` whose registers, memory and interrupts are in software: for ``pynq.Overlay`` and all behind it."""

from __future__ import annotations

import itertools
import os
import struct
from pathlib import Path
from typing import Any

import numpy as np
import pynq
import pynq.ps
from pynq.buffer import PynqBuffer
from pynq.interrupt import _InterruptController
from pynq.pl_server.device import Device
from pynqmetadata.frontends import Metadata

from ...hls.library import EngineLibrary
from ...toolkit.errors import OverlayError
from ..bitfile import read_bitfile
from ..design import ENGINE, INTERRUPTS, RESET, BlockDesign
from .engine import EngineBlock
from .faults import Faults
from .interrupts import InterruptController, UserInterrupt
from .memory import BusError, ContiguousMemory
from .registers import PlainRegisters, RegisterBlock, ResetRegister

try:
    from pynqmetadata.views.runtime import RuntimeMetadataParser
except ImportError:  # before pynq 4
    from pynq.metadata.runtime_metadata_parser import RuntimeMetadataParser

__all__ = ["EmulatedDevice"]

CRL_APB = 0xFF5E_0000, 0x1000, {0x20: 45 << 8, 0xC0: 0x0101_0A00}  # UG1087: IOPLL 1500 MHz, PL0 from it
CRF_APB = 0xFD1A_0000, 0x1000, {}
_numbers = itertools.count()


class EmulatedBuffer(PynqBuffer):
    """A buffer whose memory is the device's to release, once."""

    def freebuffer(self) -> None:
        release = getattr(self, "release", None)  # a view has none
        if release is not None and not self.freed:
            self.freed = True
            release()


class RegisterWindow(np.ndarray):
    """Mapped registers: reading or writing an element, of it or of a view of it, is an access of the device."""

    def __array_finalize__(self, parent: Any) -> None:
        self.access = getattr(parent, "access", None)

    def __getitem__(self, key: Any) -> Any:
        if isinstance(key, (int, np.integer)):
            device, base, _ = self.access
            word = device.read_registers(base + self._offset(self._one(key)), self.itemsize)
            return np.frombuffer(word, self.dtype)[0]
        return super().__getitem__(key)

    def __setitem__(self, key: Any, value: Any) -> None:
        device, base, _ = self.access
        target = self._one(key) if isinstance(key, (int, np.integer)) else super().__getitem__(key)
        words = np.broadcast_to(np.asarray(value, self.dtype), target.shape)
        device.write_registers(base + self._offset(target), words.tobytes())

    def _one(self, index: int) -> RegisterWindow:
        return super().__getitem__(slice(index, index + 1 or None))

    def _offset(self, view: RegisterWindow) -> int:
        return view.__array_interface__["data"][0] - self.access[2]


class EmulatedDevice(Device):
    """The board of a block design.

    Its contiguous memory is bounded, and apart from the processor's copy of each buffer: what is not flushed the
    engine does not see, what is not invalidated the processor does not.
    """

    arch = "aarch64"  # asked for by pynq.ps.Clocks

    def __init__(self, design: BlockDesign, library: EngineLibrary, faults: Faults | None = None) -> None:
        faults = faults or Faults()
        self.name = faults.name or f"emulated-{os.getpid()}-{next(_numbers)}"
        super().__init__(self.name)
        if pynq.__version__.startswith("3.0."):
            pynq.ps.CPU_ARCH = self.arch  # that version looks at the processor instead
        self.capabilities = {"MEMORY_MAPPED": not faults.by_calls, "REGISTER_RW": faults.by_calls, "CALLABLE": False}
        self.design, self.faults, self.downloads = design, faults, 0
        self.memory = ContiguousMemory(faults.memory)
        self.line = UserInterrupt()
        slaves = design.slaves
        self.controller = InterruptController(*slaves[INTERRUPTS], self.line.drive)
        self.engine = EngineBlock(
            *slaves[ENGINE], library, self.memory, lambda level: self.controller.drive(0, level), faults
        )
        self._blocks: list[RegisterBlock] = [
            PlainRegisters(*CRL_APB),
            PlainRegisters(*CRF_APB),
            self.engine,
            self.controller,
            ResetRegister(*slaves[RESET], self.engine.reset),
        ]
        self._processor_copies: dict[int, bytearray] = {}
        if "_real_instance" in vars(pynq.ps.Clocks):  # of the device before this one
            del pynq.ps.Clocks._real_instance

    # Loading

    def get_bitfile_metadata(self, bitfile_name: str, partial: bool = False) -> RuntimeMetadataParser:
        parser = RuntimeMetadataParser(Metadata(input=Path(bitfile_name).with_suffix(".hwh")))
        parser.refresh_hierarchy_dict()
        return parser

    def download(self, bitstream: Any, parser: Any = None) -> None:
        """OverlayError for a bitstream of a real board."""
        bitfile = read_bitfile(Path(bitstream.bitfile_name))
        if not bitfile.emulated:
            raise OverlayError(
                bitfile.path, "a bitstream for a board", "one for the emulated device", "Use --device board."
            )
        self.downloads += 1
        self.engine.reset(active=True)
        self.post_download(bitstream, parser, self.name)
        _InterruptController._controllers.clear()
        for controller in self.interrupt_controllers.values():
            _InterruptController._uio_devices[controller["raw_irq"]] = self.line

    def gen_cache(self, bitstream: Any, parser: Any = None) -> None:
        """Nothing is kept beside the bitstream."""

    def close(self) -> None:
        """Nothing to close."""

    # Registers

    def mmap(self, base: int, length: int) -> RegisterWindow:
        window = np.zeros(length // 4, np.uint32).view(RegisterWindow)
        window.access = (self, base, window.__array_interface__["data"][0])
        return window

    def read_registers(self, address: int, length: int) -> bytes:
        block = self._block(address)
        words = [block.read(address - block.base + offset) & 0xFFFFFFFF for offset in range(0, length, 4)]
        return struct.pack(f"<{len(words)}I", *words)

    def write_registers(self, address: int, data: bytes) -> None:
        block = self._block(address)
        for index, word in enumerate(struct.unpack(f"<{len(data) // 4}I", bytes(data))):
            block.write(address - block.base + 4 * index, word)

    def _block(self, address: int) -> RegisterBlock:
        for block in self._blocks:
            if block.base <= address < block.base + block.size:
                return block
        raise BusError(f"no registers at {address:#x}")

    # Memory

    def allocate(self, shape: Any, dtype: Any = "u4", **options: Any) -> EmulatedBuffer:
        size = int(np.prod(shape)) * np.dtype(dtype).itemsize
        address = self.memory.allocate(size)
        copy = self._processor_copies[address] = bytearray(self.memory.view(address, size).tobytes())
        buffer = EmulatedBuffer(
            shape, dtype, buffer=copy, device=self, device_address=address, bo=address, coherent=False
        )
        buffer.release = lambda: self._release(address)
        return buffer

    def get_memory(self, description: Any) -> EmulatedDevice:
        return self

    def flush(self, bo: int, offset: int, pointer: int, size: int) -> None:
        target = self.memory.view(bo + offset, size)
        target[:] = np.frombuffer(self._processor_copies[bo], np.uint8, size, offset)
        if self.faults.flip == 0:
            target[0] ^= 0x10

    def invalidate(self, bo: int, offset: int, pointer: int, size: int) -> None:
        target = np.frombuffer(self._processor_copies[bo], np.uint8)
        target[offset : offset + size] = self.memory.view(bo + offset, size)

    def _release(self, address: int) -> None:
        self.memory.release(address)
        self._processor_copies.pop(address, None)
