"""Patches out of compressed HDF5 volumes at listed coordinates."""
