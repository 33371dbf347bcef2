"""What a user reads at the end of a run."""
