"""GPTQ with two-level groups: Brevitas's algorithm, with scales fitted to what each input is worth."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
from brevitas.nn import QuantLinear

from .brevitas_graph import GPTQ, gptq_mode
from .network import QuantLlama
from .two_level import TwoLevelScaling

__all__ = ["TwoLevelGPTQ", "observed_together", "run_gptq"]

BLOCK_COLUMNS = 32  # columns corrected one by one before the rest of the matrix is, in one product


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


def observed_together(network: QuantLlama) -> list[list[str]]:
    """Names of the linear layers observed in one pass over the clips: those of a decoder layer.

    Within it they see one another rounded to nearest; observing them one after the other takes twice as long
    and gains nothing that can be measured.
    """
    attention = [f"self_attn.{name}_proj" for name in "qkvo"]
    mlp = [f"mlp.{name}_proj" for name in ("gate", "up", "down")]
    return [[f"layers.{index}.{name}" for name in attention + mlp] for index in range(len(network.layers))]


@torch.no_grad()
def run_gptq(network: QuantLlama, batches: Callable[[str], Iterable[torch.Tensor]]) -> list[str]:
    """Choose the weights of each decoder layer in turn, for the inputs that the quantized layers before it give.

    ``batches(step)`` starts another pass over the calibration tokens; a pass ends at the layers it observes. The head
    stays rounded to nearest. Returns notes on layers that could not be improved and on inputs never active.
    """
    _initialize_scales(network)
    network.head.weight_quant.disable_quant = True  # Brevitas then leaves it out
    try:
        with warnings.catch_warnings(record=True) as caught, _mode(network) as mode:
            for index in range(mode.num_layers):
                for tokens in batches(f"GPTQ {index + 1} of {mode.num_layers}"):
                    mode.model(tokens)
                with _one_thread():
                    mode.update()
    finally:
        network.head.weight_quant.disable_quant = False
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


def _mode(network: QuantLlama) -> gptq_mode:
    return gptq_mode(
        network,
        group_of_parallel_layers=observed_together(network),
        create_weight_orig=False,
        use_quant_activations=True,
        gptq_class=TwoLevelGPTQ,
    )


def _initialize_scales(network: QuantLlama) -> None:
    """Brevitas wants the scales of a weight to exist before GPTQ asks for its integers."""
    for module in network.modules():
        if isinstance(module, QuantLinear):
            module.quant_weight()


def _silent_inputs(observed: dict[str, TwoLevelGPTQ]) -> list[str]:
    counts = {name: int((layer.importance == 0).sum()) for name, layer in observed.items()}
    return [
        f"{name}: {count} of {observed[name].importance.numel()} inputs were never active, their weights are zero"
        for name, count in counts.items()
        if count
    ]
