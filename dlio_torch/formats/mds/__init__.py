"""Format ``mds``: shards of MosaicML Streaming, read by NumPy with the calls of its reader."""
