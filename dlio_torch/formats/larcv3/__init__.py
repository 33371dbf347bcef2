"""larcv3's HDF5 layout of sparse 2-D images."""
