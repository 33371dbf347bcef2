"""Rules that derive advice from the figures of a run, each with its evidence."""
