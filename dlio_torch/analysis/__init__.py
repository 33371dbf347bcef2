"""Figures from what was recorded."""
