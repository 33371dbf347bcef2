"""Storage that the operating system mounts: atomic files, page cache, device limits, folders held by a lock."""
