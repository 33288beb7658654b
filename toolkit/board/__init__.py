"""What runs on the board, or looks at it."""
