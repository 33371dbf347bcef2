"""Format ``hdf5_volume``: patches of compressed HDF5 volumes at listed coordinates."""
