"""Measures the overhead of the tool: its start, its index, and steps in which nothing is done."""
