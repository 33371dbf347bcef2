"""Runs that are killed at a drawn call, and what they must leave."""
