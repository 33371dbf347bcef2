"""From samples on disk to batches: layout, generation, order, loading."""
