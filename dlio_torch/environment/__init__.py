"""Description of the machine: hardware, software, file systems, control groups, I/O counters of processes."""
