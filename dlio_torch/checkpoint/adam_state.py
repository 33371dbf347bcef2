"""State of a model for ``torch.save``: layers of a transformer and their Adam moments."""

from __future__ import annotations

import errno
from itertools import cycle
from typing import Any

import torch

from dlio_torch.files.locked_folder import temporary_folder

_BYTES = 4  # float32
_COPIES = 3  # the parameter and Adam's two moments
_MEASURED = 16 * 1024 * 1024
_WIDTHS = (16, 32, 64, 128, 256, 512, 1024, 2048, 4096, 8192)


def make_state(state_bytes: int, file_name: str) -> dict[str, Any]:
    """Makes a state whose ``torch.save`` file has ``state_bytes``, within 1 % from 64 KiB on.

    Returns:
        ``{"model": {name: parameter}, "optimizer": {"state": {i: {step, exp_avg, exp_avg_sq}},
        "param_groups": [...]}}`` as ``state_dict()`` of a module and of ``torch.optim.Adam`` give them:
        float32 tensors of random numbers.
    """
    elements = state_bytes // (_BYTES * _COPIES)
    for _ in range(3):  # fewer numbers may mean fewer layers
        overhead = _archive_overhead(layer_shapes(elements), file_name)
        elements = max(1, (state_bytes - overhead) // (_BYTES * _COPIES))
    return _state(layer_shapes(elements))


def _archive_overhead(shapes: list[tuple[int, ...]], file_name: str) -> int:
    """Bytes of a ``torch.save`` file without its tensors: names, records, alignment."""
    if _elements(shapes) * _BYTES * _COPIES > _MEASURED:
        # A small part of a large file, and nearly the same for layers of any size.
        shapes = [(16,)] * len(shapes)
    # A file and not a buffer: every record repeats the file's name.
    state = _state(shapes)
    with temporary_folder() as folder:
        archive = folder / file_name
        try:
            torch.save(state, archive)
        except RuntimeError as error:  # torch drops the system's error number
            raise OSError(errno.EIO, "", str(folder)) from error
        return archive.stat().st_size - _elements(shapes) * _COPIES * _BYTES


def _elements(shapes: list[tuple[int, ...]]) -> int:
    return sum(torch.Size(shape).numel() for shape in shapes)


def layer_shapes(elements: int) -> list[tuple[int, ...]]:
    """Shapes of layers that hold ``elements`` numbers together (at least 1).

    Blocks of a transformer (attention in and out, two linear layers of factor 4, two norms) of the
    largest width that gives four blocks, or the smallest width; the rest is the head.
    """
    width = max((w for w in _WIDTHS if 4 * _elements(_block(w)) <= elements), default=_WIDTHS[0])
    block = _block(width)
    shapes: list[tuple[int, ...]] = []
    left = elements
    for shape in cycle(block):
        size = torch.Size(shape).numel()
        if size >= left:
            break
        shapes.append(shape)
        left -= size
    return [*shapes, (max(left, 1),)]


def _block(width: int) -> list[tuple[int, ...]]:
    return [(3 * width, width), (width, width), (4 * width, width), (width, 4 * width), (width,), (width,)]


def _state(shapes: list[tuple[int, ...]]) -> dict[str, Any]:
    generator = torch.Generator().manual_seed(1)

    def tensor(shape: tuple[int, ...]) -> torch.Tensor:
        return torch.rand(shape, generator=generator, dtype=torch.float32)

    return {
        "model": {f"layers.{i}.weight": tensor(shape) for i, shape in enumerate(shapes)},
        "optimizer": {
            "state": {
                i: {"step": 1.0, "exp_avg": tensor(shape), "exp_avg_sq": tensor(shape)}
                for i, shape in enumerate(shapes)
            },
            "param_groups": [{"lr": 1e-3, "betas": [0.9, 0.999], "eps": 1e-8, "params": list(range(len(shapes)))}],
        },
    }
