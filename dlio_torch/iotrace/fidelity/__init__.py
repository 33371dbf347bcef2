"""Compares two recordings component by component, and relates their distance to the noise of repeated runs."""
