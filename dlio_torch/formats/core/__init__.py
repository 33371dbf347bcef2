"""Shared parts of all formats: the contract, batches, file layouts, codecs, buffered and direct files, MPI files."""
