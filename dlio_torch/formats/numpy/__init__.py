"""Formats ``npy`` and ``npz``: NumPy's single-array files and zip archives."""
