"""Headers made from what Python knows: configuration, records and registers, tables.

Each is the only source of its numbers in C++; none is kept in the repository.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np

from ..toolkit.numerics import tables
from ..toolkit.numerics.sampling import LOG2_STEPS
from ..toolkit.program import descriptors, registers
from ..toolkit.program.engine import MAX_PROJECTOR, EngineConfig
from ..toolkit.program.memory import DEPTH_SLOTS
from ..toolkit.program.words import Record
from ..toolkit.settings import MAX_COLUMNS
from .engine_bench import bench_model

__all__ = ["write_headers"]

CTYPES = {"u32": "uint32_t", "i32": "int32_t", "f32": "float"}


def write_headers(folder: Path, config: EngineConfig) -> None:
    """``config.h``, ``descriptor.h`` and ``tables.h`` into ``folder``."""
    folder.mkdir(parents=True, exist_ok=True)
    for name, text in (
        ("config", config_header(config)),
        ("descriptor", records_header()),
        ("tables", tables_header()),
    ):
        (folder / f"{name}.h").write_text(_guarded(name, text))


def config_header(config: EngineConfig) -> str:
    """Capacities and parallelism as constants, the build id, and the sizes of the engine's test bench."""
    values = {
        "ROWS": config.rows,
        "GROUPS": config.groups,
        "VECTOR": config.vector,
        "MAX_LAYERS": config.max_layers,
        "MAX_HIDDEN": config.max_hidden,
        "MAX_MLP": config.max_mlp,
        "MAX_HEADS": config.max_heads,
        "MAX_KV_HEADS": config.max_kv_heads,
        "MAX_GROUP": config.max_group,
        "MAX_HEAD_DIM": config.max_head_dim,
        "MAX_SLOTS": config.max_slots,
        "MAX_CODES": config.max_codes,
        "MAX_INPUTS": config.max_inputs,
        "MAX_WIDE": config.max_wide,
        "WEIGHT_FIFO_BEATS": config.weight_fifo_beats,
        "MAX_DEPTH_LAYERS": 0 if config.depth is None else config.depth.layers,
        "MAX_DEPTH_CODES": 1 if config.depth is None else config.depth.codes_per_position,
        "MAX_CODE_DIM": 32 if config.depth is None else config.depth.code_dim,
    }
    lines = [f"// Engine {config.name}.", f"constexpr uint32_t BUILD_ID = 0x{config.build_id:08X}u;"]
    lines += [f"constexpr int {name} = {value};" for name, value in values.items()]
    lines.append("// Beats of the buffers of tb/engine_tb.cpp: in co-simulation what each pointer may reach.")
    depths = bench_model(config).depths(config)
    return "\n".join(lines + [f"constexpr int {name} = {value};" for name, value in depths.items()])


def records_header() -> str:
    """Opcodes, status codes, flags, policies, and the records as structs."""
    opcodes = ", ".join(f"{code.name} = {code.value}" for code in descriptors.Opcode)
    status = ", ".join(f"{name} = {code}" for code, (name, _) in registers.STATUS.items())
    constants = {
        "NODE_INT4": descriptors.NODE_INT4,
        "NODE_BIAS": descriptors.NODE_BIAS,
        "MODEL_PRE_ROPE": descriptors.PRE_ROPE,
        "MODEL_HEADS_MAX": descriptors.TAS_HEADS_CODES["max"],
        "MODEL_HEADS_MIN": descriptors.TAS_HEADS_CODES["min"],
        "MODEL_DEPTH": descriptors.MODEL_DEPTH,
        **registers.FLAGS,
        "OWN_CODE": registers.OWN_CODE,
        "GIVEN": registers.GIVEN,
    }
    parts = [f"enum Opcode {{ {opcodes} }};", f"enum Status {{ {status} }};"]
    parts += [f"constexpr int DESCRIPTOR_WORDS = {descriptors.WORDS};"]
    parts += [f"constexpr uint32_t {name} = {value};" for name, value in constants.items()]
    parts += [f"constexpr int MAX_COLUMNS = {MAX_COLUMNS};  // earlier frames whose same place a position sees"]
    policies = ", ".join(f"POLICY_{name.upper()} = {code}" for name, code in registers.POLICY_CODES.items())
    parts += [
        f"enum Policy {{ {policies} }};",
        f"constexpr int LAYER_NODES = {len(descriptors.LAYER)};  // descriptors of a layer",
        f"constexpr int ENDING_NODES = {len(descriptors.ENDING)};  // behind the last layer",
        f"constexpr int DEPTH_INPUT_NODES = {len(descriptors.DEPTH_INPUTS)};  // before a depth transformer's layers",
        f"constexpr int DEPTH_LAYER_NODES = {len(descriptors.DEPTH_LAYER)};",
        f"constexpr int DEPTH_ENDING_NODES = {len(descriptors.DEPTH_ENDING)};",
        f"constexpr int MAX_PROJECTOR = {MAX_PROJECTOR};  // layers from the codes to the backbone",
    ]
    parts += [f"constexpr int DEPTH_SLOTS = {DEPTH_SLOTS};  // of the depth transformer's caches"]
    records = (descriptors.MODEL, descriptors.DEPTH, descriptors.NODE, registers.CONTROL, registers.REPORT)
    parts += map(_struct, records)
    return "\n\n".join(parts)


def tables_header() -> str:
    """The function tables as arrays: what a kernel holds of them, and shifts."""
    steps = 1 << tables.EXP_FRACTION_BITS
    every = slice(None, None, 1 << tables.SIGMOID_SHIFT)
    sigmoid, phi = ((table[every] * 65536).astype(np.int64) for table in (tables.sigmoid_table(), tables.phi_table()))
    constants = {
        "EXP_FRACTION_BITS": tables.EXP_FRACTION_BITS,
        "ATTENTION_BITS": tables.ATTENTION_BITS,
        "SAMPLE_BITS": tables.SAMPLE_BITS,
        "SIGMOID_STEPS": tables.SIGMOID_STEPS,
        "SIGMOID_SHIFT": tables.SIGMOID_SHIFT,
    }
    arrays = {
        "ATTENTION_MANTISSA": ("uint16_t", tables.exp2_table(tables.ATTENTION_BITS)[:steps]),
        "SAMPLE_MANTISSA": ("uint32_t", tables.exp2_table(tables.SAMPLE_BITS)[:steps]),
        "SIGMOID_TABLE": ("uint16_t", sigmoid),
        "PHI_TABLE": ("uint16_t", phi),
    }
    lines = [f"constexpr int {name} = {value};" for name, value in constants.items()]
    lines.append(f"constexpr uint32_t LOG2_STEPS_BITS = 0x{LOG2_STEPS.view(np.uint32):08X}u;")
    return "\n".join(lines + [_array(name, *content) for name, content in arrays.items()])


def _struct(record: Record) -> str:
    fields = [
        f"    {CTYPES[word.kind]} {word.name};" + (f"  // {word.about}" if word.about else "") for word in record.words
    ]
    text = [f"// {record.about}", f"struct {record.name} {{", *fields]
    if record.size is not None:  # travels in memory
        values = [
            f"words[{index}]"
            if word.kind == "u32"
            else f"float_of(words[{index}])"
            if word.kind == "f32"
            else f"(int32_t)words[{index}]"
            for index, word in enumerate(record.words)
        ]
        text += [
            "",
            f"    static {record.name} from(const uint32_t words[DESCRIPTOR_WORDS]) {{",
            f"        return {record.name}{{{', '.join(values)}}};",
            "    }",
        ]
    return "\n".join([*text, "};"])


def _array(name: str, ctype: str, values: np.ndarray) -> str:
    rows = [", ".join(map(str, values[start : start + 16])) for start in range(0, len(values), 16)]
    return f"static const {ctype} {name}[{len(values)}] = {{\n    " + ",\n    ".join(rows) + ",\n};"


def _guarded(name: str, text: str) -> str:
    guard = f"FASTCAR_{name.upper()}_H"
    include = '#include "float32.h"' if name == "descriptor" else "#include <stdint.h>"
    return (
        f"// Generated. Do not edit.\n#ifndef {guard}\n#define {guard}\n\n{include}\n\n"
        f"namespace fastcar {{\n\n{text}\n\n}}  // namespace fastcar\n\n#endif\n"
    )
