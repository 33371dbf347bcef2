"""Parts of the benchmark ``au_truth``: the ideal loader, and runs on simulated storages and limited devices."""
