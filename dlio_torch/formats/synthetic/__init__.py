"""Format ``synthetic``: samples in memory, without files."""
