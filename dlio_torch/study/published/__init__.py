"""Points of publications beside those of a study."""
