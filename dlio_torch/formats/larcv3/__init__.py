"""Format ``larcv3``: larcv3's HDF5 files of sparse 2-D images."""
