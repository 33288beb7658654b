"""Everything a step needs to know of the steps before it: caches, mask, ages and replayed outputs."""

from __future__ import annotations

import numpy as np

from ..config import BackboneConfig, FrameLayout
from ..numerics.attention import MASKED
from ..settings import FULL_ATTENTION, AttentionSettings

__all__ = ["ZERO", "DecodeState"]

ZERO = 128  # int8 0 as it travels in uint8


class DecodeState:
    """Flat arrays appended in place; K and V grow by whole frames, so no step copies a cache.

    ``k_cache[layer]``, ``v_cache[layer]`` (rows, kv_heads, slots, head_dim) uint8; ``mask`` (rows, slots) int32;
    ``replay_cache`` (places, layers, rows, hidden) uint16 bfloat16 bits; ``age`` (places, layers, rows) int32, how
    often the cached output has been replayed; ``mlp_input_cache`` (places, layers, rows, hidden) uint8, what it was
    computed from, only if that is the ``criterion`` of replay, else None. ``limit``: positions the clip may use,
    ValueError beyond. ``attention`` decides which appended slots the mask leaves visible at ``position``; the caches
    keep the others too.
    """

    def __init__(
        self,
        config: BackboneConfig,
        layout: FrameLayout,
        rows: int,
        limit: int,
        attention: AttentionSettings = FULL_ATTENTION,
        criterion: str = "tas",
    ) -> None:
        self.config, self.layout, self.rows, self.limit, self.attention = config, layout, rows, limit, attention
        self.position = 0
        places = layout.tokens_per_frame
        self.replay_cache = np.zeros((places, config.layers, rows, config.hidden), np.uint16)
        self.mlp_input_cache: np.ndarray | None = None
        if criterion == "mlp-input":
            self.mlp_input_cache = np.full(self.replay_cache.shape, ZERO, np.uint8)
        self.age = np.zeros((places, config.layers, rows), np.int32)
        self.slots = 0
        self.k_cache: list[np.ndarray] = []
        self.v_cache: list[np.ndarray] = []
        self.mask = np.zeros((rows, 0), np.int32)
        self.first = np.zeros(rows, np.int64)  # slot of each row behind its padding
        self._columns = np.zeros(0, np.int64)  # slots that are seen as columns now, ...
        self._beneath = np.zeros((rows, 0), np.int32)  # ... and what the mask (rows, columns) is without them
        self._grow(layout.prompt_length + places)

    @property
    def place(self) -> int:
        """Place of the position in its frame; prompt positions use the places before the first one."""
        return (self.position - self.layout.prompt_length) % self.layout.tokens_per_frame

    @property
    def eligible(self) -> bool:
        """Whether the same place of an earlier frame lies before the position."""
        return self.position - self.layout.tokens_per_frame >= self.layout.prompt_length

    @property
    def slot_before(self) -> int:
        """Slot of the same place one frame earlier; slot 0 where there is none."""
        return max(self.position - self.layout.tokens_per_frame, 0)

    def make_room(self) -> bool:
        """Ensure a slot for the next position; True when the caches were replaced by larger ones."""
        if self.position >= self.limit:
            raise ValueError(f"position {self.position} is beyond the {self.limit} positions this state was made for")
        if self.position < self.slots:
            return False
        self._grow_by_a_frame()
        return True

    def pretend(self, position: int) -> None:
        """As if a run had come as far as ``position``, with zeros in the caches: what time does not depend on."""
        while self.slots <= position:
            self._grow_by_a_frame()
        self.position = position
        self.mask[:, :position] = 0

    def append(self, outputs: dict[str, np.ndarray], padding: np.ndarray | bool = False) -> None:
        """Take in a step's k, v, mlp_output, replay, and mlp_input if it is kept (stacked layers * rows), and move to
        the next position.

        ``padding`` (rows,) bool: rows that read none there, in front of all they read; nothing will see the slot.
        """
        shape = (self.config.layers, self.rows)
        k, v = (outputs[name].reshape(*shape, self.config.kv_heads, self.config.head_dim) for name in ("k", "v"))
        for layer in range(self.config.layers):
            self.k_cache[layer][:, :, self.position] = k[layer]
            self.v_cache[layer][:, :, self.position] = v[layer]
        self._hide_columns()
        self._move_window(padding)
        place = self.place
        self.replay_cache[place] = outputs["mlp_output"].reshape(*shape, -1)
        if self.mlp_input_cache is not None:
            self.mlp_input_cache[place] = outputs["mlp_input"].reshape(*shape, -1)
        self.age[place] = (self.age[place] + 1) * outputs["replay"].reshape(shape)
        self.position += 1
        self._show_columns()

    def _move_window(self, padding: np.ndarray | bool) -> None:
        """For the position after this one: this one's slot enters the window, and at most one other leaves it."""
        self.first += padding
        self.mask[:, self.position] = np.where(padding, MASKED, 0)
        if self.attention.window is not None:
            leaving = self.position - self.attention.window
            if leaving >= 0:
                self.mask[leaving >= self.first + self.attention.sinks, leaving] = MASKED

    def _show_columns(self) -> None:
        """The same place of earlier frames, for one position: with the next one all of them are others."""
        if self.attention.columns:
            slots = self.position - self.layout.tokens_per_frame * np.arange(1, self.attention.columns + 1)
            self._columns = slots[slots >= self.layout.prompt_length]
            self._beneath = self.mask[:, self._columns]
            padded = self._columns < self.first[:, None]
            self.mask[:, self._columns] = np.where(padded, self._beneath, 0)

    def _hide_columns(self) -> None:
        self.mask[:, self._columns] = self._beneath

    def _grow_by_a_frame(self) -> None:
        self._grow(min(self.slots + self.layout.tokens_per_frame, self.limit))

    def _grow(self, slots: int) -> None:
        self.k_cache = [self._larger(old, slots) for old in self.k_cache or [None] * self.config.layers]
        self.v_cache = [self._larger(old, slots) for old in self.v_cache or [None] * self.config.layers]
        mask = np.full((self.rows, slots), MASKED, np.int32)
        mask[:, : self.slots] = self.mask
        self.mask, self.slots = mask, slots

    def _larger(self, old: np.ndarray | None, slots: int) -> np.ndarray:
        new = np.full((self.rows, self.config.kv_heads, slots, self.config.head_dim), ZERO, np.uint8)
        if old is not None:
            new[:, :, : self.slots] = old
        return new
