"""Lowering of the integer model to ONNX: one file a node, each emitting standard operators only."""
