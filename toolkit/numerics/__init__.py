"""The numerics contract in NumPy: one file a node, integers in every reduction, so no result depends on an order."""
