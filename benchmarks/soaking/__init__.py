"""What ``benchmarks/soak.py`` is made of: the ways of running, what is looked at, and the lines through it."""
