"""Traces for viewers: Perfetto and TensorBoard's profiler plugin."""
