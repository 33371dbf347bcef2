"""The machine under a run: what it is, what its file systems are, what processes read and wrote."""
