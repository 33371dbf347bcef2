"""The ladder that removes one cost of a run at a time."""
