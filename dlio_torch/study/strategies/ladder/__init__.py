"""The ladder strategy, which removes one cost of a run at a time."""
