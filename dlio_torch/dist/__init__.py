"""Ranks: who this process is among the others, and how it talks to them.

``launcher`` says which launcher started the process, ``registry.connect`` returns the communicator
for it, ``base`` is the protocol that the rest of the package is written against.  Importing this
package, or ``launcher``, does not import torch.
"""
