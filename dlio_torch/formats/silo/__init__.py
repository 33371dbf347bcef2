"""LLNL's Silo by its HDF5 driver."""
