"""Files that appear whole, and folders that belong to one process."""
