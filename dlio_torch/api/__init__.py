"""Python interface: configurations, runs, data sets, loaders and emulated steps for programs of one's own.

Its functions are attributes of the package: ``dlio_torch.compose``, ``dlio_torch.run`` and so on.
"""
