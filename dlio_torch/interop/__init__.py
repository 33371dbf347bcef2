"""Workloads of other benchmarks: DLIO and MLPerf Storage."""
