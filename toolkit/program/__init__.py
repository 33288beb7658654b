"""What the overlay executes and what it needs to know: descriptors, registers, memory layout, configuration.

The one place these formats are written down: the C++ headers and the Python packers are both made from it.
"""
