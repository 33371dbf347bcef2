"""Starts one rank of many, alone, up to its first batch."""
