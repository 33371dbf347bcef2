"""Emulated compute: step times, and waits that do not block the loader.

Import the modules themselves; this file loads nothing, so that no caller pays for torch.
"""
