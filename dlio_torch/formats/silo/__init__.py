"""Format ``silo``: LLNL's Silo files of the HDF5 driver."""
