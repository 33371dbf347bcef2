"""The data path from samples on disk to batches: data set, generation, sample order, loader engines."""
