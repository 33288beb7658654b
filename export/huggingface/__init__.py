"""Checkpoints in the layout of Hugging Face's LLaMA, whose video tokens are part of the vocabulary."""
