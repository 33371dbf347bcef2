"""Checkpoints of a training: what they cost, and how often to save them."""
