"""Measurements that back the figures in the documentation: ``python -m benchmarks``, or ``--help`` of it."""
