"""Storage of data sets and checkpoints: the Storage contract, page cache, limits of the device, staging."""
