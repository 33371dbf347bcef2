"""Damaged and hostile input for the package's parsers, and the outcome of reading it."""
