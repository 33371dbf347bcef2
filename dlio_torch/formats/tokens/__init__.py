"""Format ``tokens``: token files read by windows of ``numpy.memmap``."""
