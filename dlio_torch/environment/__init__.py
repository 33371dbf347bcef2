"""The machine under a run: hardware, software, file systems, control groups, I/O counters of processes."""
