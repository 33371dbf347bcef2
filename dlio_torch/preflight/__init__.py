"""Checks before anything is written."""
