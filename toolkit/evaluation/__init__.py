"""What clips are worth, one by one and over a grid of settings, prompts and seeds: metrics, and the runs behind."""
