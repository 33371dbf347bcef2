"""Format ``hdf5``: HDF5 files with one array per field of a sample, read through h5py."""
