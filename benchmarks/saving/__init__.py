"""Saves of checkpoints that benchmarks measure."""
