"""Reads the event files of all processes of a run into one table of calls and spans."""
