"""The page about a study: a sweep, a search or a ladder."""
