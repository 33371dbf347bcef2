"""Format ``mds``: shards of MosaicML Streaming, read by NumPy."""
