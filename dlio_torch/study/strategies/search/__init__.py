"""The search for the best settings."""
