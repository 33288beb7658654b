"""The protocol of a back end, and the part of it shared by those that run step by step."""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from ..config import PADDING, BackboneConfig, DepthConfig, FrameLayout
from ..numerics.depth import TEXT
from ..numerics.tas import NEVER, Pooling
from ..settings import FULL_ATTENTION, AttentionSettings, ReplaySettings, SamplingSettings
from .state import ZERO, DecodeState

__all__ = ["Backend", "FrameRecord", "SteppingBackend", "joined", "next_read", "sampling_inputs", "step_inputs"]

NO_LIMIT = np.iinfo(np.int32).max


@dataclass(frozen=True)
class FrameRecord:
    """What a run of steps produced; step i reads position ``first + i`` and predicts the code after it.

    Where a separator comes after it, the code is what would have been chosen: it is not used.
    """

    first: int
    codes: np.ndarray  # (steps, clips) int64, without the code offset; (steps, clips, D) with a depth transformer
    scores: np.ndarray  # (steps, layers, rows) int64
    replay: np.ndarray  # (steps, layers, rows) bool
    logits: np.ndarray | None  # codes' shape + (codes,) float32, after guidance; None where they were not asked for
    seconds: float


def joined(records: list[FrameRecord]) -> FrameRecord:
    """Records of runs that follow each other as one."""
    parts = {name: np.concatenate([getattr(record, name) for record in records]) for name in ("codes", "scores")}
    logits = None if records[0].logits is None else np.concatenate([record.logits for record in records])
    replay = np.concatenate([record.replay for record in records])
    return FrameRecord(records[0].first, **parts, replay=replay, logits=logits, seconds=sum(r.seconds for r in records))


class Backend(Protocol):
    """A device or library that decodes. ``start`` resets everything, so two equal runs give equal results.

    With a depth transformer (``depth``) of D codes a position, tokens with one axis more, the last of D, are codes
    instead of tokens, uniforms and codes have D at the end, and logits (D, codes).
    """

    name: str
    config: BackboneConfig
    layout: FrameLayout
    depth: DepthConfig | None

    def start(
        self,
        clips: int,
        limit: int,
        sampling: SamplingSettings,
        replay: ReplaySettings,
        attention: AttentionSettings = FULL_ATTENTION,
        logits: bool = True,
    ) -> None:
        """Prepare for ``clips`` clips of at most ``limit`` positions; guidance doubles the rows.

        ``attention`` bounds what a step attends to, not what it keeps: replay works as without it. ``logits`` False: a
        back end may leave them out of its records.
        """

    def prefill(self, tokens: np.ndarray) -> None:
        """Run the positions of tokens (rows, n), dense, without keeping their predictions; ``PADDING`` in front of a
        row's own are positions that it will not attend to."""

    def score(self, tokens: np.ndarray, following: np.ndarray | None = None) -> np.ndarray:
        """Run the positions of tokens (rows, n), dense: logits (n, clips, codes) of the code after each of them.

        ``following`` (clips, n, D), with a depth transformer only: the codes after each of them, for the logits of a
        code depend on those before it in its position.
        """

    def decode(self, tokens: np.ndarray, uniforms: np.ndarray, thresholds: np.ndarray) -> FrameRecord:
        """Read tokens (rows,), then each predicted code in turn, or the separator that the layout has in its place, for
        as many steps as uniforms (steps, clips) has.

        thresholds (layers,) int64 are integer TAS scores; see ``numerics.tas.integer_threshold``.
        """

    def counters(self) -> dict[str, int]:
        """Steps run and MLP evaluations replayed since ``start``."""

    def cached(self, position: int) -> dict[str, np.ndarray]:
        """What a position left behind: k and v (layers, rows, kv_heads, head_dim) int8, and ``mlp_output`` (layers,
        rows, hidden) uint16 bfloat16 bits, of its place's last position."""


def step_inputs(
    state: DecodeState, clips: int, replay: ReplaySettings, depth: DepthConfig | None = None
) -> dict[str, np.ndarray]:
    """The backbone's inputs that stay the same in a run, and room for those that change, under the graph's names."""
    config, rows = state.config, state.rows
    pooling = Pooling.of(replay.policy, rows)
    return {
        "tokens": np.zeros(rows, np.int64),
        **({"codes": np.full((rows, depth.codes_per_position), TEXT, np.int64)} if depth else {}),
        "position": np.zeros(rows, np.int64),
        **_of_criterion(state),
        "eligible": np.zeros(rows, np.bool_),
        "replay_cache": np.zeros((config.layers * rows, config.hidden), np.uint16),
        "age": np.zeros(config.layers * rows, np.int32),
        "threshold": np.full(config.layers, NEVER, np.int64),
        "max_age": np.array(replay.max_age or NO_LIMIT, np.int32),
        "pool": pooling.pool,
        "vote": pooling.vote,
    }


def _of_criterion(state: DecodeState) -> dict[str, np.ndarray]:
    """What the score is computed from beside the step's own values: where the cached key is, or cached MLP inputs."""
    if state.mlp_input_cache is None:
        return {"slot_before": np.zeros((), np.int64)}
    return {"mlp_input_cache": np.zeros((state.config.layers * state.rows, state.config.hidden), np.uint8)}


def sampling_inputs(
    layout: FrameLayout, clips: int, rows: int, sampling: SamplingSettings, depth: DepthConfig | None = None
) -> dict[str, np.ndarray]:
    """The same of what predicts codes: a part of the backbone's graph, or the depth transformer's."""
    greedy = sampling.temperature == 0
    first = np.arange(clips, dtype=np.int64)
    shape = (clips,) if depth is None else (clips, depth.codes_per_position)
    of_depth = {"clip": np.tile(first, rows // clips), "given": np.full(shape, TEXT, np.int64)}
    return {
        **(of_depth if depth else {}),
        "conditional": first,
        "unconditional": first + (rows - clips),
        "uniform": np.zeros(shape, np.int64),
        "guidance": np.array(sampling.guidance, np.float32),
        "inverse_temperature": np.array(1.0 if greedy else 1.0 / sampling.temperature, np.float32),
        "top_k": np.array(1 if greedy else sampling.top_k or layout.codes, np.int64),
        "top_p": np.array(round(sampling.top_p * 65536), np.int64),
    }


class SteppingBackend(ABC):
    """Runs the graph's step function once a position; subclasses say how.

    ``sampling`` holds the inputs of what predicts codes; they are among ``inputs`` unless there is a depth transformer.
    ``criterion`` is what the step decides replay by; in records and outputs its score is called ``scores`` and ``tas``.
    """

    name: str

    def __init__(
        self, config: BackboneConfig, layout: FrameLayout, depth: DepthConfig | None = None, criterion: str = "tas"
    ) -> None:
        self.config, self.layout, self.depth, self.criterion = config, layout, depth, criterion

    @abstractmethod
    def run_step(self) -> dict[str, np.ndarray]:
        """Outputs of one step over ``self.inputs`` and ``self.state``; valid until the next call."""

    @abstractmethod
    def run_depth(self, hidden: np.ndarray) -> dict[str, np.ndarray]:
        """``code`` and ``logits`` of the depth transformer for a step's ``hidden``; likewise."""

    @abstractmethod
    def caches_replaced(self) -> None:
        """Called when the state's K and V arrays and mask are new ones."""

    def start(
        self,
        clips: int,
        limit: int,
        sampling: SamplingSettings,
        replay: ReplaySettings,
        attention: AttentionSettings = FULL_ATTENTION,
        logits: bool = True,
    ) -> None:
        self.clips = clips
        rows = clips * (2 if sampling.guided else 1)
        self.state = DecodeState(self.config, self.layout, rows, limit, attention, self.criterion)
        self.inputs = step_inputs(self.state, clips, replay, self.depth)
        self.sampling = sampling_inputs(self.layout, clips, self.state.rows, sampling, self.depth)
        if self.depth is None:
            self.inputs |= self.sampling
        self._steps = self._replayed = 0
        self.caches_replaced()

    def prefill(self, tokens: np.ndarray) -> None:
        self.inputs["threshold"][:] = NEVER
        for column in tokens.swapaxes(0, 1):
            self._step(column)

    def score(self, tokens: np.ndarray, following: np.ndarray | None = None) -> np.ndarray:
        self.inputs["threshold"][:] = NEVER
        logits = []
        for index, column in enumerate(tokens.swapaxes(0, 1)):
            if following is not None:
                self.sampling["given"][:] = following[:, index]
            logits.append(self._predict(self._step(column))["logits"].copy())
        if following is not None:
            self.sampling["given"][:] = TEXT
        return np.stack(logits)

    def decode(self, tokens: np.ndarray, uniforms: np.ndarray, thresholds: np.ndarray) -> FrameRecord:
        steps, layers, rows = uniforms.shape[0], self.config.layers, self.state.rows
        first, began = self.state.position, time.perf_counter()
        codes = np.zeros(uniforms.shape, np.int64)
        logits = np.zeros((*uniforms.shape, self.layout.codes), np.float32)
        scores = np.zeros((steps, layers, rows), np.int64)
        replay = np.zeros((steps, layers, rows), np.bool_)
        self.inputs["threshold"][:] = thresholds
        for step in range(steps):
            self.sampling["uniform"][:] = uniforms[step]
            outputs = self._step(tokens)
            predicted = self._predict(outputs)
            codes[step], logits[step] = predicted["code"], predicted["logits"]
            scores[step] = outputs["tas"].reshape(layers, rows)
            replay[step] = outputs["replay"].reshape(layers, rows)
            tokens = next_read(first + step, codes[step], rows, self.layout, self.depth)
        return FrameRecord(first, codes, scores, replay, logits, time.perf_counter() - began)

    def counters(self) -> dict[str, int]:
        return {"steps": self._steps, "replayed": self._replayed}

    def cached(self, position: int) -> dict[str, np.ndarray]:
        state = self.state
        place = (position - self.layout.prompt_length) % self.layout.tokens_per_frame
        k, v = (np.stack([cache[:, :, position] for cache in caches]) for caches in (state.k_cache, state.v_cache))
        signed = [(part.astype(np.int16) - ZERO).astype(np.int8) for part in (k, v)]
        return {"k": signed[0], "v": signed[1], "mlp_output": state.replay_cache[place].copy()}

    def _step(self, tokens: np.ndarray) -> dict[str, np.ndarray]:
        state = self.state
        if state.make_room():
            self.caches_replaced()
        self._read(tokens)
        self.inputs["position"][:] = state.position
        if state.mlp_input_cache is None:
            self.inputs["slot_before"][...] = state.slot_before
        else:
            self.inputs["mlp_input_cache"].reshape(-1)[:] = state.mlp_input_cache[state.place].reshape(-1)
        self.inputs["eligible"][:] = state.eligible
        self.inputs["replay_cache"].reshape(-1)[:] = state.replay_cache[state.place].reshape(-1)
        self.inputs["age"][:] = state.age[state.place].reshape(-1)
        outputs = self.run_step()
        state.append(outputs, tokens == PADDING if tokens.ndim == 1 else False)
        self._steps += 1
        self._replayed += int(outputs["replay"].sum())
        return outputs

    def _predict(self, outputs: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
        return outputs if self.depth is None else self.run_depth(outputs["hidden"])

    def _read(self, given: np.ndarray) -> None:
        """Tokens (rows,), ``PADDING`` as any of them, or codes (rows, D)."""
        if given.ndim == 1:
            self.inputs["tokens"][:] = np.maximum(given, 0)
            if self.depth is not None:
                self.inputs["codes"][:] = TEXT
        else:
            self.inputs["tokens"][:] = 0
            self.inputs["codes"][:] = given


def next_read(
    position: int, codes: np.ndarray, rows: int, layout: FrameLayout, depth: DepthConfig | None
) -> np.ndarray:
    """What all rows read after the step at ``position`` chose codes (clips,) or (clips, D): tokens (rows,), of these
    or of the separator that follows, or codes (rows, D)."""
    repeats = rows // len(codes)
    return np.tile(layout.after(position, codes), repeats) if depth is None else np.tile(codes, (repeats, 1))
