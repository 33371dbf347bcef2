"""The run directory: names of its files, and the state of its run."""
