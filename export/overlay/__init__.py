"""Packing for the overlay: graph nodes to descriptors, weights to the order the read ports stream them in."""
