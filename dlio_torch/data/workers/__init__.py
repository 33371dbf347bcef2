"""Worker processes of loaders: start, transfer of batches, exit."""
