"""Checkpoints of VILA-U (arXiv 2409.04429): a LLaMA that reads residual codes, and a depth transformer behind it."""
