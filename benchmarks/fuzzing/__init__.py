"""Parts of the benchmark ``fuzz``: what is drawn, how a case is run, and what is wrong with its outcome."""
