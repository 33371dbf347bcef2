"""Sizes of the files of TensorFlow's Saver."""

from __future__ import annotations

from dlio_torch.config.schema import TensorFlowConfig

TENSORFLOW_BUFFER = 8 << 20
"""Bytes of the variables that TensorFlow hands to one fwrite (``tensor_bundle.cc``, ``kBufferSize``)."""


def largest_write(options: TensorFlowConfig, data_bytes: int) -> int:
    """Bytes of the largest fwrite."""
    sizes = (options.meta_bytes, options.graph_text_bytes, options.graph_bytes, options.index_bytes)
    return max(min(TENSORFLOW_BUFFER, data_bytes), *sizes)


def start_bytes(options: TensorFlowConfig) -> int:
    """Bytes written once before the first checkpoint: graph.pbtxt and the event file."""
    # A record of the version, and two of each graph; 16 bytes around each.
    events = 40 + 2 * (options.graph_bytes + options.meta_bytes + 32) if options.graph_bytes else 0
    return options.graph_text_bytes + events
