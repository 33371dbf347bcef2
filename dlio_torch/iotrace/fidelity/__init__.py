"""Similarity of two recordings, component by component, beside the noise between equal ones."""
