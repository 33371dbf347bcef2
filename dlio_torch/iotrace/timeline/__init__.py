"""Writes and reads timelines for viewers: Perfetto and TensorBoard's profiler plugin."""
