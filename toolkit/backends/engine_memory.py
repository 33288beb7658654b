"""The engine's state buffer and settings as the host writes and reads them; the same for simulation and board."""

from __future__ import annotations

import numpy as np

from ..program.memory import BEAT_BYTES, BLOCK_SLOTS, PORTS, StateLayout
from ..program.registers import POLICY_CODES
from ..settings import AttentionSettings, ReplaySettings, SamplingSettings
from .protocol import NO_LIMIT, FrameRecord

__all__ = ["ClipRecords", "EngineMemory", "control_settings"]


def control_settings(
    layout: StateLayout, sampling: SamplingSettings, replay: ReplaySettings, attention: AttentionSettings
) -> dict[str, float]:
    """The fields of the control record that stay the same for a clip, but those that describe the program."""
    greedy = sampling.temperature == 0
    return {
        "state_beats": layout.total_beats,
        "rows": layout.rows,
        "clips": layout.clips,
        "slots": layout.slots,
        "policy": POLICY_CODES[replay.policy],
        "max_age": replay.max_age or NO_LIMIT,
        "sinks": attention.sinks,
        "window": attention.window or 0,
        "columns": attention.columns,
        "guidance": sampling.guidance,
        "inverse_temperature": 1.0 if greedy else 1.0 / sampling.temperature,
        "top_k": 1 if greedy else sampling.top_k or layout.layout.codes,
        "top_p": round(sampling.top_p * 65536),
        "thresholds": layout.thresholds,
        "input": layout.input,
        "output": layout.output,
        "trace": layout.trace,
    }


class ClipRecords:
    """What the steps of a clip recorded, by position: made once, written frame by frame."""

    def __init__(self, layout: StateLayout, limit: int) -> None:
        chosen = (layout.clips,) if layout.depth is None else (layout.clips, layout.codes_per_position)
        self.codes = np.zeros((limit, *chosen), np.int64)
        self.scores = np.zeros((limit, layout.config.layers, layout.rows), np.int64)
        self.replay = np.zeros(self.scores.shape, np.bool_)
        self.logits = np.zeros((limit, *chosen, layout.layout.codes), np.float32) if layout.logits else None

    def frame(self, first: int, steps: int, seconds: float) -> FrameRecord:
        """Views of the steps from position ``first`` on."""
        own = slice(first, first + steps)
        logits = None if self.logits is None else self.logits[own]
        return FrameRecord(first, self.codes[own], self.scores[own], self.replay[own], logits, seconds)


class EngineMemory:
    """The state buffer, (beats, 16) uint8; ``state`` None: allocated here, zero."""

    def __init__(self, layout: StateLayout, state: np.ndarray | None = None) -> None:
        self.layout = layout
        self.state = np.zeros((layout.total_beats, BEAT_BYTES), np.uint8) if state is None else state

    def write_inputs(
        self, tokens: np.ndarray, uniforms: np.ndarray, thresholds: np.ndarray, padding: np.ndarray
    ) -> None:
        """tokens (steps, rows), OWN_CODE for a step that reads the last code; uniforms (steps, clips); thresholds
        (layers,) integer scores; padding (rows,) first slots that hold nothing.

        With a depth transformer: tokens (steps, rows, D), a token in the first of them, or codes; uniforms (steps,
        clips, D), or GIVEN and a code.
        """
        layout = self.layout
        layers = layout.config.layers
        self._words(layout.thresholds, layout.paddings - layout.thresholds).view(np.int64)[:layers] = thresholds
        self._words(layout.paddings, layout.input - layout.paddings)[: layout.rows] = padding
        parts = layout.input_parts
        records = self._words(layout.input, len(uniforms) * sum(parts.values())).reshape(len(uniforms), -1)
        read, drawn = tokens.reshape(len(uniforms), -1), uniforms.reshape(len(uniforms), -1)
        records[:, : read.shape[1]] = read
        first = 4 * parts["tokens"]
        records[:, first : first + drawn.shape[1]] = drawn

    def read_outputs(self, records: ClipRecords, first: int, steps: int) -> None:
        """What the last ``steps`` steps recorded, into ``records``; the first of them read position ``first``."""
        layout, own = self.layout, slice(first, first + steps)
        parts = layout.output_parts
        words = self._words(layout.output, steps * sum(parts.values())).reshape(steps, -1)
        codes, masks, scores, logits = np.split(words, np.cumsum([4 * beats for beats in parts.values()])[:-1], axis=1)
        records.codes[own] = codes[:, : layout.clips * layout.codes_per_position].reshape(
            steps, *records.codes.shape[1:]
        )
        layers = layout.config.layers
        for row in range(layout.rows):
            np.not_equal(masks[:, :layers] & np.uint32(1 << row), 0, out=records.replay[own, :, row])
        low, high = scores[:, 0::2], scores[:, 1::2]
        count = layers * layout.rows
        pairs = records.scores[own].reshape(steps, count, 1).view(np.uint32)  # little-endian, as the engine writes
        pairs[:, :, 0], pairs[:, :, 1] = low[:, :count], high[:, :count]
        if records.logits is not None:
            every = logits.view(np.float32).reshape(*records.codes[own].shape, -1)
            records.logits[own] = every[..., : layout.layout.codes]

    def read_trace(self, record: FrameRecord) -> dict[str, np.ndarray]:
        """What the nodes of a traced step left behind; ``record``: of that step."""
        trace = self.layout.trace_layout
        found = trace.read(self.state[self.layout.trace :], record.scores[0], record.replay[0])
        return found | trace.chosen(record.logits[0], record.codes[0])

    def cached(self, position: int) -> dict[str, np.ndarray]:
        """k and v (layers, rows, kv_heads, head_dim) int8 of a position, and the MLP output of its place as bfloat16
        bits (layers, rows, hidden): what a step leaves behind."""
        layout = self.layout
        config, frame = layout.config, layout.layout
        caches = self.state[: layout.cache_beats].reshape(layout.cache_shape).view(np.int8)
        block, lane = divmod(position, BLOCK_SLOTS)
        own = caches[:, :, :, :, block % PORTS, block // PORTS]
        keys = own[:, :, 0].reshape(*own.shape[:2], config.kv_heads, BLOCK_SLOTS, config.head_dim)[:, :, :, lane]
        values = own[:, :, 1].reshape(*own.shape[:2], config.kv_heads, config.head_dim, BLOCK_SLOTS)[..., lane]
        replayed = self.state[layout.cache_beats : layout.cache_beats + layout.replay_beats].reshape(
            layout.replay_shape
        )
        place = (position - frame.prompt_length) % frame.tokens_per_frame
        outputs = np.ascontiguousarray(replayed[place, :, :, : 2 * config.hidden]).view(np.uint16)
        return {"k": keys.copy(), "v": values.copy(), "mlp_output": outputs}

    def _words(self, beat: int, beats: int) -> np.ndarray:
        return self.state[beat : beat + beats].reshape(-1).view(np.uint32)
