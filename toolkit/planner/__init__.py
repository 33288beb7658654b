"""What a model would do on a board, before anything is built: does it fit, how fast, what limits it. All estimated."""
