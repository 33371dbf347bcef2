"""Reads logs of other tools as recordings: one module per tool, and their shared parts.

:func:`dlio_torch.iotrace.importers.any_log.open_log` picks the reader by the content of a path.
"""
