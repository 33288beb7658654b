"""Checkpoint folders of safetensors or PyTorch files, in one piece or sharded: checked whole, read tensor by tensor."""

from .expected import check_tensors, read_finite
from .store import TensorStore

__all__ = ["TensorStore", "check_tensors", "read_finite"]
