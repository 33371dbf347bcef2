"""Emulated compute: distributions of step times, and ways to spend the time without blocking the loader.

Import the modules themselves; this file loads nothing, so that no caller pays for torch.
"""
