"""Text tables."""
