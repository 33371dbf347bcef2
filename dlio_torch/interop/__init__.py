"""Imports workloads of other benchmarks: DLIO and MLPerf Storage."""
