"""HLS kernels of the overlay: nothing here yet; each will implement one node of fastcar.toolkit.numerics."""
