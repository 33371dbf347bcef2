"""Where samples lie in the files of each format: what the decoupled engine reads by, beside the faithful readers."""
