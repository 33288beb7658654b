"""The notebook for a board; ``pynq get-notebooks`` copies it, and finds it by this package's entry point."""
