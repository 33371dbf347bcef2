"""Recordings of I/O: recorder, importers of other tools' logs, event tables, figures and comparison."""
