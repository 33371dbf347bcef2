"""Parts of ``benchmarks/soak.py``: the variants of runs, the measured figures, and their slopes."""
