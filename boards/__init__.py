"""One data file a board, and their loader."""
