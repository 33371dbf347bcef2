"""Formats ``jpeg`` and ``png``: one image per file."""
