"""Logs of other tools as recordings: one module per tool, and what they share.

``open_recording`` in :mod:`dlio_torch.trace.sources` finds out which of them a path needs.
"""
