"""Supervision: waits that take too long, crashes, signals, the exit of processes, and their orphaned files."""
