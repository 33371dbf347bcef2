"""Rules that turn what a run measured into advice, each with its evidence."""
