"""Engines: what moves batches from a data set to the trainer."""
