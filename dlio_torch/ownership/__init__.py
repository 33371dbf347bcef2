"""Ownership: which folders and files this tool made, and their removal."""
