"""Studies: many runs of one recipe, each in its own process, and their comparison."""
