"""Format ``lmdb``: samples as values of a memory-mapped B+ tree."""
