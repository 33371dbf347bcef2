"""Supervision of processes: watchdog for long waits, crashes, signals, exits of processes, and orphaned files."""
