"""Description of existing TFRecord files: compression, features and their lengths in the first records."""

from __future__ import annotations

import os
import statistics
from collections.abc import Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from dlio_torch.config.schema import FieldConfig
from dlio_torch.errors import DataError
from dlio_torch.formats.core.batch import is_reserved
from dlio_torch.formats.core.data_description import DataDescription, StoredArray
from dlio_torch.formats.core.file_errors import os_errors
from dlio_torch.formats.tfrecord.example_proto import Kind, Octets, value_spans, wire_features
from dlio_torch.formats.tfrecord.file import opened
from dlio_torch.formats.tfrecord.framing import GZIP_MAGIC
from dlio_torch.formats.tfrecord.index import INDEX, read_index
from dlio_torch.formats.tfrecord.options import SUFFIXES

_MOST_RECORDS = 64
_MOST_BYTES = 64 << 20
_TRANSFER = 256 << 10
_DTYPES: dict[Kind, str] = {"bytes": "uint8", "floats": "float32", "integers": "int64"}
_MAGICS = {b"\xff\xd8\xff": "JPEG image", b"\x89PNG": "PNG image", b"RIFF": "RIFF (WebP, WAV)", b"GIF8": "GIF image"}
_ZLIB = 0x78
Compression = Literal["none", "gzip", "zlib"]


@dataclass(frozen=True)
class StoredFeature:
    """One feature of one record.

    Attributes:
        kind: of its values.
        values: number of byte strings or of numbers.
        elements: number of bytes or of numbers.
        content: what the first bytes are, where they tell.
    """

    kind: Kind
    values: int
    elements: int
    content: str


Record = Mapping[str, StoredFeature]


def describe(path: Path) -> DataDescription:
    """Describes a TFRecord file.

    Raises:
        DataError: it is damaged, or its records are no Example protos with features that can be read.
    """
    compression = _compression(path)
    records, complete = _first_records(path, compression)
    names = list(dict.fromkeys(name for record in records for name in record))
    problems = {name: _problem(name, records) for name in names}
    readable = [name for name in names if not problems[name]]
    if not readable:
        reasons = "; ".join(f"{name}: {problem}" for name, problem in problems.items()) or "it is empty"
        raise DataError(
            f"{path}: the records have no feature that can be read: {reasons}",
            hint="write Example protos with one byte string or a list of numbers for each feature",
        )
    has_index, notes = _index(path)
    options: dict[str, Any] = {}
    if compression != "none":
        options["compression"] = compression
    floats = [name for name in readable if _of(name, records)[0].kind == "floats"]
    if floats:
        options["float_lists"] = floats
    if has_index:
        options["index"] = True
    if not path.name.lower().endswith(SUFFIXES):
        notes.append(f"a folder of such files is read by a pattern: dataset.path='{path.parent}/*'")
    notes.append(f"lengths are those of the first {len(records)} records; a file does not state them")
    return DataDescription(
        fields=tuple(_field(name, records) for name in readable),
        options=options,
        samples=len(records) if complete else None,
        arrays=tuple(_stored(name, records, problems[name]) for name in names),
        notes=tuple(notes),
        details={"compression": compression, "index": "yes" if has_index else "no"},
    )


def _compression(path: Path) -> Compression:
    with os_errors(path), open(path, "rb") as file:
        head = file.read(12)
    if not head:
        raise DataError(f"{path} holds no records", hint="remove the file, or choose another dataset.path")
    if head.startswith(GZIP_MAGIC):
        return "gzip"
    # RFC 1950, section 2.2: method and window, and a check of both; a record begins with its length.
    is_zlib = len(head) > 1 and head[0] == _ZLIB and (head[0] * 256 + head[1]) % 31 == 0
    return "zlib" if is_zlib and any(head[4:8]) else "none"


def _first_records(path: Path, compression: Compression) -> tuple[list[Record], bool]:
    """Features of the first records, and whether there are no others."""
    records: list[Record] = []
    with opened(path, _TRANSFER, compressed=compression != "none") as file, closing(file), os_errors(path):
        stream = file.begun("records")
        while (length := stream.peek()) is not None:
            taken = len(records) >= _MOST_RECORDS or stream.offset + length > _MOST_BYTES
            if taken and records:
                return records, False
            record = stream.next()
            assert record is not None
            records.append(_features(record, len(records), path))
    return records, True


def _features(record: Octets, number: int, path: Path) -> Record:
    view = record.data
    try:
        features = wire_features(view)
        if not features:
            raise ValueError("it has no features")
        return {
            name.decode(errors="replace"): _feature(view, kind, value_spans(view, low, high))
            for name, (kind, low, high) in features.items()
        }
    except ValueError as error:
        raise DataError(
            f"{path}: record {number} is not an Example proto, but another message or plain bytes",
            hint="dataset.format=tfrecord reads tf.train.Example protos only",
        ) from error


def _feature(view: memoryview, kind: Kind, spans: Sequence[tuple[int, int]]) -> StoredFeature:
    size = sum(end - start for start, end in spans)
    if kind == "bytes":
        head = bytes(view[spans[0][0] : spans[0][0] + 4]) if spans else b""
        content = next((name for magic, name in _MAGICS.items() if head.startswith(magic)), "")
        return StoredFeature(kind, len(spans), size, content)
    if kind == "floats":
        return StoredFeature(kind, size // 4, size // 4, "")
    # The last byte of each number is below 128.
    count = sum(1 for start, end in spans for byte in view[start:end] if byte < 0x80)
    return StoredFeature(kind, count, count, "")


def _of(name: str, records: Sequence[Record]) -> list[StoredFeature]:
    return [record[name] for record in records if name in record]


def _problem(name: str, records: Sequence[Record]) -> str:
    """Why a feature cannot be read; empty: it can."""
    if is_reserved(name):
        return "its name is reserved for what dlio_torch adds to a batch: not read"
    kinds = {feature.kind for feature in _of(name, records)}
    if len(kinds) > 1:
        return f"is {' and '.join(sorted(kinds))} in different records: not read"
    for number, record in enumerate(records):
        if name not in record:
            return f"is missing in record {number}: not read"
        if record[name].kind == "bytes" and record[name].values != 1:
            return f"holds {record[name].values} byte strings in record {number}: not read"
    return "is empty: not read" if not any(feature.elements for feature in _of(name, records)) else ""


def _field(name: str, records: Sequence[Record]) -> FieldConfig:
    features = _of(name, records)
    kind, lengths = features[0].kind, [feature.elements for feature in features]
    dtype = _DTYPES[kind]
    if kind != "bytes" and set(lengths) == {1}:
        return FieldConfig(name, dtype, [])
    if len(lengths) > 1 and len(set(lengths)) == 1:
        return FieldConfig(name, dtype, lengths[:1])
    mean, deviation = statistics.fmean(lengths), statistics.pstdev(lengths)
    return FieldConfig(name, dtype, [], round(mean, 1), round(deviation, 1))


def _stored(name: str, records: Sequence[Record], problem: str) -> StoredArray:
    features = _of(name, records)
    lengths = {feature.elements for feature in features}
    kind = {"bytes": "byte string", "floats": "list of float32", "integers": "list of int64"}[features[0].kind]
    content = features[0].content
    shape = (lengths.pop(),) if len(lengths) == 1 else None
    return StoredArray(name, f"{kind}: {content}" if content else kind, shape, note=problem)


def _index(path: Path) -> tuple[bool, list[str]]:
    """Whether each file of the folder has an index, and notes on it."""
    try:
        if read_index(path) is None:
            return False, []
    except DataError as error:
        return False, [f"the index is not used: {error.message}"]
    with os_errors(path.parent):
        ends = (*SUFFIXES, INDEX)
        names = {name for name in os.listdir(path.parent) if name.lower().endswith(ends)}
    lacking = sorted(name for name in names if not name.endswith(INDEX) and name + INDEX not in names)
    if lacking:
        return False, [f"the index files are not used: {lacking[0]} has none"]
    return True, []
