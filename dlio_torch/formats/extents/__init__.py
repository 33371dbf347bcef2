"""Format ``extents``: recorded requests on raw files, for data that no known format explains."""
