"""Comparison of the points of a study with a publication."""
