"""Layouts ``files`` and ``torch_save``: files of given sizes, or ``torch.save`` of a state."""
