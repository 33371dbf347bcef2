"""Writes reports about runs: console text and HTML pages."""
