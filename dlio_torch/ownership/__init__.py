"""Ownership: markers of folders that this tool created, and removal of the files that they list."""
