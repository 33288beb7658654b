"""Kernels and top level of the overlay in HLS C++."""
