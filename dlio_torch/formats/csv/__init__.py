"""Format ``csv``: text tables."""
