"""The training loop and what it records."""
