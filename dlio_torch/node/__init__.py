"""What one machine can feed: its limits for the I/O of a recipe, and the limit that a recipe meets first."""
