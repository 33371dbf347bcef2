"""Engines: loaders that read batches from a data set and deliver them to the trainer."""
