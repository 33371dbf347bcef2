"""Checkpoints: the described job, the files and tensors of each rank, their writers and readers."""
