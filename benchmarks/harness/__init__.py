"""Parts that all benchmarks share: interleaved rounds, tables, the record of the machine, the command."""
