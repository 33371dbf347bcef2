"""Builds the page about one run, one recorded program or one log."""
