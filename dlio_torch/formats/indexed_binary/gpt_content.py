"""Generates the content of a ``.bin`` file whose samples are cut from shuffled documents, document by document."""

from __future__ import annotations

import math
from collections.abc import Iterator
from concurrent.futures import Executor
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from dlio_torch.formats.core import payload
from dlio_torch.formats.core.column import PIECE_BYTES, Column
from dlio_torch.formats.core.ordered_map import in_order
from dlio_torch.formats.indexed_binary.gpt_index import GptIndex

_DOCUMENTS = 1 << 16  # whose pieces are listed at a time
_AHEAD = 8

Ints = npt.NDArray[np.int64]


class _DocumentPieces(NamedTuple):
    """Consecutive pieces of the file and the samples that they belong to.

    Attributes:
        samples: number of the sample that each is a piece of.
        low: its first token in that sample.
        high: the token behind its last one.
    """

    samples: Ints
    low: Ints
    high: Ints


def document_tokens(
    column: Column, tokens: int, lengths: Ints, gpt: GptIndex, first_sample: int, pool: Executor
) -> Iterator[npt.NDArray[np.uint8]]:
    """Yields the bytes of all documents in file order; each sample gets the content of its number.

    Args:
        column: where the content of a sample comes from.
        tokens: of a sample.
        lengths: tokens of each document; together those of all samples and one more.
        gpt: which of them make which sample.
        first_sample: number of the file's first sample.
        pool: threads that make content.

    Yields:
        uint8, up to 1 MiB.
    """
    elements = math.prod(column.spec.shape)  # of a sample, in the type of the array

    def tokens_of(pieces: _DocumentPieces) -> npt.NDArray[np.uint8]:
        content: npt.NDArray[Any] = np.empty((len(pieces.samples), elements), column.spec.dtype)
        sizes = np.full(len(content), elements, np.int64)
        payload.fill(content, column.seed, column.stream, pieces.samples, sizes, column.compressibility)
        rows = content.view(np.uint8).reshape(len(content), tokens, -1)
        number = np.arange(tokens)
        return rows[(number >= pieces.low[:, None]) & (number < pieces.high[:, None])].reshape(-1)

    at_once = max(1, PIECE_BYTES // (elements * column.spec.dtype.itemsize))
    yield from in_order(pool, tokens_of, _pieces(lengths, gpt, tokens, first_sample, at_once), _AHEAD)


def _pieces(lengths: Ints, gpt: GptIndex, tokens: int, first_sample: int, at_once: int) -> Iterator[_DocumentPieces]:
    starts = np.empty(len(lengths), np.int64)  # of each document in the stream of tokens
    ordered = lengths[gpt.documents]
    starts[gpt.documents] = np.cumsum(ordered) - ordered
    samples = np.empty(len(gpt) + 1, np.int64)  # that has each slot
    samples[gpt.shuffle] = np.arange(len(gpt))
    samples[-1] = len(gpt)  # the one more token
    for begin in range(0, len(lengths), _DOCUMENTS):
        start = starts[begin : begin + _DOCUMENTS]
        end = start + lengths[begin : begin + _DOCUMENTS]
        slot = start // tokens
        counts = (end - 1) // tokens - slot + 1
        document = np.repeat(np.arange(len(start)), counts)
        slots = slot[document] + np.arange(len(document)) - np.repeat(np.cumsum(counts) - counts, counts)
        low = np.maximum(start[document] - slots * tokens, 0)
        high = np.minimum(end[document] - slots * tokens, tokens)
        numbers = first_sample + samples[slots]
        for first in range(0, len(slots), at_once):
            part = slice(first, first + at_once)
            yield _DocumentPieces(numbers[part], low[part], high[part])
