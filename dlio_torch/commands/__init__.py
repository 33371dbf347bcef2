"""The verbs of the command line, one module per family of verbs; :mod:`dlio_torch.cli` imports a module when needed."""
