"""Samples that are in memory; no files."""
