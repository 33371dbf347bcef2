"""Inspection of a TFRecord file: records from their framing."""

from __future__ import annotations

import contextlib
import gzip
from pathlib import Path
from typing import Any

from dlio_torch.errors import DlioError
from dlio_torch.formats.core.content import MOST
from dlio_torch.formats.tfrecord.example_proto import wire_features
from dlio_torch.formats.tfrecord.framing import CRC, FRAMING, GZIP_MAGIC, HEADER, crc32c, masked
from dlio_torch.formats.tfrecord.index import INDEX

_MOST_RECORDS = 1_000_000
_MOST_UNPACKED = 256 << 20  # bytes of a compressed stream
_MOST_FEATURES = 16 << 20  # bytes of a record that is looked into


def recognises(path: Path, head: bytes) -> bool:
    """Whether a file holds TFRecords, judged by its framing, or by its name if it is compressed or damaged."""
    name = path.name.lower()
    if name.endswith(INDEX):
        return False
    return "tfrecord" in name or (not head.startswith(GZIP_MAGIC) and _is_record(path, head))


def _is_record(path: Path, head: bytes) -> bool:
    """Whether the file begins with the length of a record and a valid checksum of the length."""
    if len(head) < HEADER.size or HEADER.unpack_from(head)[0] + FRAMING > path.stat().st_size:
        return False
    try:
        return bool(masked(crc32c()(0, head[:8])) == HEADER.unpack_from(head)[1])
    except DlioError:  # the package that computes checksums is not installed
        return False


def read_content(path: Path, content: dict[str, Any]) -> None:
    """Add ``records``, ``record_bytes`` (``min``, ``mean``, ``max``), ``compressed``, ``features`` and ``complete``.

    ``features`` are those of the first record; ``None``: it is no Example.
    """
    content |= {"records": 0, "record_bytes": None, "compressed": False, "features": None, "complete": False}
    with open(path, "rb") as plain, contextlib.ExitStack() as stack:
        content["compressed"] = plain.read(2) == GZIP_MAGIC
        plain.seek(0)
        file = stack.enter_context(gzip.GzipFile(fileobj=plain)) if content["compressed"] else plain
        least, most, total = 0, 0, 0
        end = _MOST_UNPACKED if content["compressed"] else content["bytes"]
        offset = 0
        try:
            while content["records"] < _MOST_RECORDS and offset < end:
                header = file.read(HEADER.size)
                if not header:
                    break
                if len(header) < HEADER.size:
                    raise ValueError(f"the file ends within the header of record {content['records']}")
                size = HEADER.unpack(header)[0]
                if not content["compressed"] and offset + size + FRAMING > end:
                    raise ValueError(f"record {content['records']} of {size} bytes goes beyond the end of the file")
                offset += size + FRAMING
                if content["compressed"] and offset > end:
                    return
                if content["records"] == 0 and size <= _MOST_FEATURES:
                    record = file.read(size)
                    content["features"] = _features(record)
                    file.seek(CRC.size, 1)
                else:
                    file.seek(size + CRC.size, 1)
                if file.tell() < offset:
                    raise ValueError(f"the file ends within record {content['records']}")
                least, most = (min(least, size), max(most, size)) if content["records"] else (size, size)
                total += size
                content["records"] += 1
            content["complete"] = offset == end or (bool(content["compressed"]) and not file.read(1))
        finally:
            if content["records"]:
                content["record_bytes"] = {"min": least, "mean": total / content["records"], "max": most}


def _features(record: bytes) -> list[dict[str, Any]] | None:
    """Features of an Example; ``None`` if the record is not an Example."""
    try:
        features = wire_features(memoryview(record))
    except ValueError:
        return None
    return [
        {"name": name.decode(errors="replace"), "kind": kind, "bytes": end - start}
        for name, (kind, start, end) in list(features.items())[:MOST]
    ]
