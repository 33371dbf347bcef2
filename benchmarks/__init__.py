"""Benchmarks behind the figures in the documentation; run ``python -m benchmarks --help``."""
