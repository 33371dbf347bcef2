"""Ranks: launchers, communicators, and failures of ranks.

``launcher`` detects the launcher that started this process.  ``registry.connect`` returns the communicator
for it.  ``base`` is the protocol that the rest of the package uses.  ``failure`` ends all ranks if one fails.
Importing this package, or ``launcher``, does not import torch.
"""
