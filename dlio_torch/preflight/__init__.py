"""Preflight checks: they run before a run writes its first file."""
