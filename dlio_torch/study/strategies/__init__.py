"""Strategies of studies: which trial comes next, and what the trials say."""
