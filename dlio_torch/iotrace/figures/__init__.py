"""Computes figures of the I/O calls of a recording: time, sizes, rates, order, files, ranks."""
