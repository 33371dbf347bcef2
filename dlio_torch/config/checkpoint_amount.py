"""Number and size of the checkpoints that a run saves, for plans and estimates."""

from __future__ import annotations

import math

from dlio_torch.config.schema_training import CheckpointConfig, TensorFlowConfig


def saves(options: CheckpointConfig, steps: int, epochs: int) -> int:
    """Number of checkpoints that a rank saves.

    A step after which one is due by its number and by the end of its epoch counts once.

    Args:
        options: of the checkpoints.
        steps: of an epoch.
        epochs: of the run.
    """
    if options.layout == "none":
        return 0
    total = steps * epochs
    by_step = total // options.every_steps if options.every_steps else 0
    by_epoch = epochs // options.every_epochs if options.every_epochs else 0
    count = by_step + by_epoch
    if by_step and by_epoch:
        count -= by_epoch // (options.every_steps // math.gcd(options.every_steps, options.every_epochs * steps))
    last = options.every_steps and total % options.every_steps == 0
    last = last or (options.every_epochs and epochs % options.every_epochs == 0)
    return count + options.before_first + (options.after_last and not last)


def checkpoint_bytes(options: CheckpointConfig) -> int:
    """Bytes that one checkpoint of a rank takes on the storage."""
    if options.layout == "files":
        return sum(file.bytes for file in options.files)
    if options.layout == "tensorflow":
        return options.state_bytes + options.tensorflow.index_bytes + options.tensorflow.meta_bytes
    return options.state_bytes if options.layout == "torch_save" else 0


def start_bytes(options: CheckpointConfig) -> int:
    """Bytes written once before the first checkpoint: TensorFlow's graph.pbtxt and event file."""
    return _start(options.tensorflow) if options.layout == "tensorflow" else 0


def held_bytes(options: CheckpointConfig) -> int:
    """Bytes of memory that a rank needs to save a checkpoint: the whole state, or the largest write call."""
    if options.layout == "files":
        return max((file.write_bytes for file in options.files), default=0)
    if options.layout == "tensorflow":
        return largest_write(options.tensorflow, options.state_bytes)
    return options.state_bytes if options.layout == "torch_save" else 0


TENSORFLOW_BUFFER = 8 << 20
"""Bytes of the variables that TensorFlow hands to one fwrite (``tensor_bundle.cc``, ``kBufferSize``)."""


def largest_write(options: TensorFlowConfig, data_bytes: int) -> int:
    """Bytes of the largest fwrite."""
    sizes = (options.meta_bytes, options.graph_text_bytes, options.graph_bytes, options.index_bytes)
    return max(min(TENSORFLOW_BUFFER, data_bytes), *sizes)


def _start(options: TensorFlowConfig) -> int:
    # A record of the version, and two of each graph; 16 bytes around each.
    events = 40 + 2 * (options.graph_bytes + options.meta_bytes + 32) if options.graph_bytes else 0
    return options.graph_text_bytes + events
