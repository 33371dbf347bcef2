"""Measurements that back the figures in the documentation; run with ``python -m benchmarks.<name>``."""
