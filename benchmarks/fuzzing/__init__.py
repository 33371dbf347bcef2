"""Parts of the benchmark ``fuzz``: drawing cases, running them, and judging their outcome."""
