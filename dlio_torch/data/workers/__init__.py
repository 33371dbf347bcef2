"""Worker processes: start, transfer, exit."""
