"""The search strategy, which looks for the best settings."""
