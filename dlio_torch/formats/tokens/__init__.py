"""Format ``tokens``: flat files of token ids, as nanoGPT's ``train.bin`` and the files of llm.c."""
