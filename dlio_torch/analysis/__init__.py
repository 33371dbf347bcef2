"""Figures of a run, breakdown of its time, and advice."""
