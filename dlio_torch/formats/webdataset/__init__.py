"""Format ``webdataset``: samples as members of tar shards."""
