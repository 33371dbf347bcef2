"""Format ``zarr``: arrays in chunks and shards, version 3."""
