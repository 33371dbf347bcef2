"""Computes the figures of a run, the breakdown of its time, and advice on its options."""
