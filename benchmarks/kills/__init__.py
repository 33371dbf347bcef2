"""Runs that are killed at a drawn system call, and checks of what they leave."""
