"""Measurement of the limits of one machine, in samples of a recipe per second."""
