"""Predicts a measured run with more ranks on a described system by a queueing simulation (:mod:`.simulate`)."""
