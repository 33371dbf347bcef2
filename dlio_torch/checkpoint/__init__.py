"""Checkpoints of a training: the described job, the files and tensors of each rank, their writers, what they cost."""
