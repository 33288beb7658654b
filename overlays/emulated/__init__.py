"""A board in software for the real pynq package: registers, interrupts, contiguous memory, the C++ engine behind them.

What it models is what the driver can get wrong: a missing flush (processor and engine see different copies), an
address outside a buffer, DONE cleared by reading, an interrupt that stays low. It has no timing.
"""
