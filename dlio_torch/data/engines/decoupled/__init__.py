"""``loader.engine=decoupled``: read by transfer sizes into reused memory, cut into samples, hand over as tensors.

``engine`` starts the reader threads of an epoch, ``epoch`` deals batches to them and hands what they made to the
trainer, ``plan`` finds the extents of the samples, ``reading`` moves bytes, ``blocks`` is the memory.
"""
