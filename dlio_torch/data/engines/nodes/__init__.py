"""``loader.engine=nodes``: a pipeline of torchdata's nodes."""
