"""NumPy's single-array files (npy) and zip archives (npz)."""
