"""Records, imports, analyses and compares the I/O calls of programs."""
