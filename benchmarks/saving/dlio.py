"""The saves of DLIO's checkpoints: the calls of its PyTorch code on the state of the same model, on one rank.

``TorchSave`` makes the calls of ``checkpointing/pytorch_checkpointing.py`` in argonne-lcf/dlio_benchmark: a file of the
layers and a file of the optimizer, with one-dimensional tensors of random numbers, each by ``torch.save`` to an open
file that is then flushed.  ``Pieces`` makes those of its newest version, which streams bytes of the same sizes in
pieces of 32 MiB.  Their generation, which happens in another process there, is left out.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import torch

from benchmarks.saving.save import Save, measured
from dlio_torch.checkpoint.layouts.plain_files.checkpoint_writer import random_bytes
from dlio_torch.config.schema_model import ModelConfig

PIECE = 32 << 20
_GROUPS = 3  # tensors of the optimizer for each group of parameters

State = dict[str, torch.Tensor] | dict[str, dict[str, torch.Tensor]]


class TorchSave:
    """Saves tensors, each file by ``torch.save``.

    Args:
        model: sizes of the model.
    """

    def __init__(self, model: ModelConfig) -> None:
        self._states: dict[str, State] = {
            "model_0_model_states": {
                str(layer): {str(i): torch.rand(size, dtype=torch.bfloat16) for i, size in enumerate(sizes)}
                for layer, sizes in enumerate(_layers(model))
            },
            "zero_pp_rank_0_mp_rank_0_optim_states": {
                str(i): torch.rand(size, dtype=torch.float32) for i, size in enumerate(_optimizer(model))
            },
        }

    def save(self, folder: Path) -> Save:
        """Saves one checkpoint to a new folder, and flushes its files."""
        return measured(folder, lambda: self._write(folder))

    def _write(self, folder: Path) -> None:
        for name, state in self._states.items():
            with (folder / f"{name}.pt").open("wb") as file:
                torch.save(state, file)
                os.fsync(file.fileno())


class Pieces:
    """Saves bytes in pieces of 32 MiB.

    Args:
        model: sizes of the model.
    """

    def __init__(self, model: ModelConfig) -> None:
        weights = sum(map(sum, _layers(model)))
        self._sizes = {"model_states": 2 * weights, "optim_states": 4 * sum(_optimizer(model))}
        self._piece = memoryview(random_bytes(PIECE))[:PIECE]

    def save(self, folder: Path) -> Save:
        """Saves one checkpoint to a new folder, and flushes its files."""
        return measured(folder, lambda: self._write(folder))

    def _write(self, folder: Path) -> None:
        for name, size in self._sizes.items():
            with (folder / f"{name}.pt").open("wb") as file:
                for first in range(0, size, PIECE):
                    file.write(self._piece[: min(PIECE, size - first)])
                file.flush()
                os.fsync(file.fileno())


def _layers(model: ModelConfig) -> Iterator[list[int]]:
    """Elements of the tensors of each layer (get_layer_parameters), the embedding first, the last norm at the end."""
    hidden, wide, table = model.hidden_size, model.ffn_hidden_size, model.vocab_size * model.hidden_size
    keys = hidden // model.num_heads * model.kv_heads
    yield [table]
    for _ in range(model.num_layers):
        yield [hidden, hidden * (hidden + 2 * keys), hidden * hidden, hidden, 2 * hidden * wide, hidden * wide]
    yield [table]
    yield [hidden]


def _optimizer(model: ModelConfig) -> list[int]:
    """Elements of the tensors of the optimizer (get_optimization_groups)."""
    return [sum(map(sum, _layers(model))), 5 * model.hidden_size] * _GROUPS
