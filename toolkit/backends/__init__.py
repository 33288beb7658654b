"""What can run a bundle: one small protocol, implemented by the NumPy reference and by onnxruntime."""
