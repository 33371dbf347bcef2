"""Studies: many runs of one recipe, each in a process of its own, put side by side."""
