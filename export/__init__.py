"""From a checkpoint to a bundle: import, quantize with Brevitas, lower to ONNX, pack."""
