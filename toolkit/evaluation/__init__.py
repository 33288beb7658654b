"""What a run's clips are worth, and over a grid of settings: metrics, and the runs they are taken of."""
