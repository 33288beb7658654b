"""GPTQ with two-level groups: Brevitas's algorithm, with scales fitted to what each input is worth."""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
from brevitas.nn import QuantLinear

from .brevitas_graph import GPTQ, gptq_mode
from .network import QuantDecoderLayer
from .two_level import TwoLevelScaling

__all__ = ["TwoLevelGPTQ", "run_gptq"]

BLOCK_COLUMNS = 32  # columns corrected one by one before the rest of the matrix is, in one product
ENOUGH_ROWS = 8  # of calibration, an input: with fewer, what inputs seem to have in common is partly chance


class TwoLevelGPTQ(GPTQ):
    """GPTQ (arXiv 2210.17323) on ``Int4WeightTwoLevelGroups`` and ``Int8WeightPerOutputChannel``.

    Two-level scales are fitted with the mean square of each input as its importance before the first column; the
    multipliers of a group are chosen again when its first column is reached, for the weights as corrected until then.
    """

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.blocksize = BLOCK_COLUMNS
        scaling = self.layer.weight_quant.tensor_quant.scaling_impl
        self.two_level = scaling if isinstance(scaling, TwoLevelScaling) else None

    def single_layer_update(self, percdamp: float = 0.01, c: float = 1e4) -> None:
        """With few rows of calibration an input the damping is stronger: else GPTQ can be worse than nearest."""
        if self.nsamples < ENOUGH_ROWS * self.layer.in_features:
            percdamp = max(percdamp, self.layer.in_features / (2 * self.nsamples))
        self.importance = self.H[0].diagonal().clone()
        if self.two_level:
            self.two_level.fit(self.layer.weight, self.importance)
        super().single_layer_update(percdamp, c)

    def get_quant_weights(
        self, i: int, i1: int, permutation_list: list[torch.Tensor], with_quant_history: bool = False
    ) -> torch.Tensor:
        """Column ``i1 + i`` as quantized now, (1, out); Brevitas would quantize the whole grouped matrix for it."""
        if self.two_level is None:
            return super().get_quant_weights(i, i1, permutation_list, with_quant_history)
        size = self.two_level.group_size
        group, place = divmod(i1 + i, size)
        if place == 0:
            inputs = slice(group * size, (group + 1) * size)
            self.two_level.refit_group(group, self.layer.weight[:, inputs], self.importance[inputs])
        return self._quantized_column(group, i1 + i).unsqueeze(0)

    def _quantized_column(self, group: int, column: int) -> torch.Tensor:
        quant = self.layer.weight_quant.tensor_quant
        weight = self.layer.weight[:, column].view(-1, 1, 1)
        scale = self.two_level.channel_scale * self.two_level.multiplier[:, group : group + 1]
        return quant.int_quant(scale, torch.zeros(()), quant.msb_clamp_bit_width_impl(), weight).flatten()


OBSERVED = [[f"self_attn.{name}_proj" for name in "qkvo"] + [f"mlp.{name}_proj" for name in ("gate", "up", "down")]]
"""The linear layers of a decoder layer, observed in one pass over the clips: they see one another rounded to nearest.

Observing them one after the other takes twice as long and gains nothing that can be measured.
"""


@torch.no_grad()
def run_gptq(layer: QuantDecoderLayer, batches: Iterable[tuple[torch.Tensor, ...]]) -> list[str]:
    """Choose the weights of a layer for the inputs it gets: each of ``batches`` is one call's arguments.

    Returns notes on projections that could not be improved and on inputs never active.
    """
    _initialize_scales(layer)
    with warnings.catch_warnings(record=True) as caught, _mode(layer) as mode:
        for arguments in batches:
            mode.model(*arguments)
        with _one_thread():
            mode.update()
    return [str(warning.message) for warning in caught] + _silent_inputs(mode.gpxq_layers)


@contextmanager
def _one_thread() -> Iterator[None]:
    """A column at a time is too little work to share: threads waiting for one another make it far slower."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def _mode(layer: QuantDecoderLayer) -> gptq_mode:
    return gptq_mode(
        layer,
        group_of_parallel_layers=OBSERVED,
        create_weight_orig=False,
        use_quant_activations=True,
        gptq_class=TwoLevelGPTQ,
    )


def _initialize_scales(layer: QuantDecoderLayer) -> None:
    """Brevitas wants the scales of a weight to exist before GPTQ asks for its integers."""
    for module in layer.modules():
        if isinstance(module, QuantLinear):
            module.quant_weight()


def _silent_inputs(observed: dict[str, TwoLevelGPTQ]) -> list[str]:
    counts = {name: int((projection.importance == 0).sum()) for name, projection in observed.items()}
    return [
        f"{name}: {count} of {observed[name].importance.numel()} inputs were never active, their weights are zero"
        for name, count in counts.items()
        if count
    ]
