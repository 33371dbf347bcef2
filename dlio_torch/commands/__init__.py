"""The verbs of the command line: one module for each family, imported by :mod:`dlio_torch.cli` when needed."""
