"""Layouts of checkpoints: one subpackage each, with the files of a rank and their writer."""
