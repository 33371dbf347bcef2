"""The training loop and its records: step times, positions, checkpoints."""
