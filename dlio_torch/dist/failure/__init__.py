"""Failures of ranks: a rank that fails, dies, does not start or is absent ends the others; one line names that rank."""
