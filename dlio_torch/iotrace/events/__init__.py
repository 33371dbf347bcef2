"""Event tables: calls and spans of all processes, from the files of an events folder."""
