"""``loader.engine=decoupled``: reads by transfer size into reused memory blocks and cuts these into sample tensors.

``engine`` starts the reader threads of an epoch, ``epoch`` deals batches to them and hands what they made to the
trainer, ``plan`` finds the extents of the samples, ``reading`` moves bytes, ``blocks`` is the memory.
"""
