"""Many runs: a grid of settings over prompts and seeds, measured against the dense run of the same prompt and seed."""
