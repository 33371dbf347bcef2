"""The loaders that :mod:`benchmarks.loaders` compares, and the data that they read."""
