"""Order of samples on each rank: orders, samplers and plans."""
