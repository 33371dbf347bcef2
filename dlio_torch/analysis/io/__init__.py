"""What the I/O calls of a recording amount to: time, sizes, rates, patterns, files, ranks."""
