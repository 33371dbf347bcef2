"""Execution of a run: :mod:`~dlio_torch.execution.pipeline` holds its phases from top to bottom."""
