"""Node: the limits of one machine for the I/O of a recipe, and the limit that the recipe meets first."""
