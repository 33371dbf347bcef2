"""Where bytes live: the Storage contract, page cache, limits of the device, staging."""
