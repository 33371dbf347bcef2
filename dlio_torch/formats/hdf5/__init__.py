"""Generic HDF5 by h5py: one array for each field of a sample."""
