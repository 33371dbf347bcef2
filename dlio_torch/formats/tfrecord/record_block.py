"""Encoding of many records at a time; records of equal lengths share all bytes except their content.

One Example of each kind is encoded as :func:`tfexample.encode` does; the others are made from it by columns.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from dlio_torch.formats.tfrecord.example_proto import Feature, Octets, Piece, encode, packed_lengths
from dlio_torch.formats.tfrecord.framing import CRC, HEADER, crc32c, frame, masked

SMALL = 64 << 10
"""Mean sample size in bytes below which Python's overhead per record exceeds the cost of copying the content."""

Lengths = npt.NDArray[np.int64]


def one_by_one(
    features: Sequence[Feature], columns: Sequence[Sequence[npt.NDArray[Any]]]
) -> tuple[list[Piece], Lengths]:
    """Frames the records of samples one by one, without copying content.

    Args:
        features: arrays of a sample.
        columns: of each feature, the array of each sample.

    Returns:
        What is to be written, and the bytes of each record; int64 of ``(samples,)``.
    """
    names = [feature.spec.name for feature in features]
    records = [frame(encode(features, dict(zip(names, arrays, strict=True)))) for arrays in zip(*columns, strict=True)]
    lengths = [sum(len(piece) for piece in record) for record in records]
    return [piece for record in records for piece in record], np.array(lengths, np.int64)


def by_columns(features: Sequence[Feature], arrays: Sequence[npt.NDArray[Any]]) -> tuple[list[Piece], Lengths]:
    """Frames the records of small fixed-shape samples together, by copying their content.

    Args:
        features: arrays of a sample.
        arrays: of each feature, of shape ``(samples, elements)``.
    """
    sizes = [
        packed_lengths(array) if feature.kind == "integers" else np.full(len(array), array[0].nbytes)
        for feature, array in zip(features, arrays, strict=True)
    ]
    kinds, kind = np.unique(np.stack(sizes, axis=1), axis=0, return_inverse=True)
    groups = [_alike(features, [array[kind == number] for array in arrays]) for number in range(len(kinds))]
    if len(groups) == 1:
        return [groups[0].reshape(-1)], np.full(len(arrays[0]), groups[0].shape[1])
    rows = [iter(records) for records in groups]
    lengths = np.array([records.shape[1] for records in groups], np.int64)
    return [next(rows[number]) for number in kind.tolist()], lengths[kind]


def _alike(features: Sequence[Feature], arrays: Sequence[npt.NDArray[Any]]) -> Octets:
    """Encodes records whose features have equal lengths; uint8 of ``(records, bytes)``."""
    count = len(arrays[0])
    first = {feature.spec.name: array[0] for feature, array in zip(features, arrays, strict=True)}
    header, *pieces, _ = frame(encode(features, first))
    records = np.empty((count, len(header) + sum(map(len, pieces)) + CRC.size), np.uint8)
    contents = iter(zip(features, arrays, strict=True))
    offset = 0
    for number, piece in enumerate([header, *pieces]):
        column = np.frombuffer(piece, np.uint8)
        if number >= 3 and number % 2:  # header, begin of the message, then head and content of each feature
            feature, array = next(contents)
            _, _, stored = encode([feature], {feature.spec.name: array})  # of all records, one after another
            column = np.frombuffer(stored, np.uint8).reshape(count, len(piece))
        records[:, offset : offset + len(piece)] = column
        offset += len(piece)
    extend = crc32c()
    sums = [masked(extend(0, data)) for data in records[:, HEADER.size : -CRC.size]]
    records[:, -CRC.size :] = np.array(sums, "<u4").view(np.uint8).reshape(count, CRC.size)
    return records
