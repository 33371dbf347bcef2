"""Damaged and hostile input for the parsers of the package: how it is made, and what comes of reading it."""
