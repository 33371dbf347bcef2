"""Strategies of studies: each chooses the next trial, and evaluates the trials."""
