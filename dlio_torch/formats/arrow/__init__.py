"""Format ``arrow``: tables of Hugging Face data sets, memory-mapped."""
