"""Format ``indexed_binary``: flat binary records with an index, as in Megatron-LM's .bin and .idx files."""
