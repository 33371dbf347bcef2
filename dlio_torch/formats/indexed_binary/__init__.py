"""Flat binary records with an index, as Megatron-LM's .bin and .idx."""
