"""The ways to load samples that :mod:`benchmarks.loaders` compares, and the data that they read."""
