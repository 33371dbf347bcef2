"""Atomic files, and folders that are locked by one process."""
