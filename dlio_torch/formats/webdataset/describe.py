"""Description of existing shards, from the headers of their members and of the first contents."""

from __future__ import annotations

import math
import tarfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any, BinaryIO

from dlio_torch.config.schema import FieldConfig
from dlio_torch.errors import DataError
from dlio_torch.formats.core.data_description import DataDescription, OpenQuestion, StoredArray
from dlio_torch.formats.core.file_errors import os_errors
from dlio_torch.formats.webdataset.members import PICKLES, kind_of_extension
from dlio_torch.formats.webdataset.payload_headers import Payload
from dlio_torch.formats.webdataset.samples import KEY, grouped, is_read
from dlio_torch.formats.webdataset.tar_headers import BLOCK, is_plain, streamed_members, tar_errors, tar_members
from dlio_torch.units import counted

_MOST_MEMBERS = 200_000  # headers that are read
_MOST_UNPACKED = 256 << 20  # bytes of a compressed shard
_SHOWN = 3


class _Sizes:
    """Sizes of the members of one extension.

    Attributes:
        count: members.
        total: bytes of all of them.
        empty: members without content.
        first: header of the first.
    """

    def __init__(self, first: tarfile.TarInfo) -> None:
        self.first = first
        self.count = self.total = self.empty = 0
        self._squares = 0

    def add(self, size: int) -> None:
        self.count += 1
        self.total += size
        self.empty += not size
        self._squares += size * size

    @property
    def mean(self) -> float:
        return self.total / self.count

    @property
    def stdev(self) -> float:
        return math.sqrt(max(0.0, self._squares / self.count - self.mean**2))


class Survey:
    """Survey of a shard: its samples and the members that are no part of one.

    Args:
        path: the shard.

    Attributes:
        plain: it is not compressed.
        samples: samples whose headers were read.
        complete: the headers of all members were read.
        sizes: of the members, by extension, in the order of their appearance.
        repeated: samples whose key an earlier sample has.
        folders, links, others, nameless, sparse: members that are folders, links, devices and the like, regular files
            without an extension or with the library's own names, and sparse files.

    Raises:
        DataError: the shard is damaged.
    """

    def __init__(self, path: Path) -> None:
        self.samples = self.repeated = 0
        self.folders = self.links = self.others = self.nameless = self.sparse = 0
        self.sizes: dict[str, _Sizes] = {}
        self.complete = True
        self._keys: set[str] = set()
        self._read = 0
        with tar_errors(path):
            self.plain = is_plain(path)
        headers = tar_members(path) if self.plain else streamed_members(path)
        self.payloads: dict[str, Payload] = {}
        with os_errors(path), open(path, "rb", buffering=0) as shard:
            for sample in grouped(self._noted(headers), path):
                self._add(sample, shard)
        self.nameless += self._read - sum(sizes.count for sizes in self.sizes.values())

    def _noted(self, headers: Iterator[tarfile.TarInfo]) -> Iterator[tarfile.TarInfo]:
        """Passes headers on, up to the bounds, and counts those that belong to no sample."""
        for number, info in enumerate(headers):
            if number >= _MOST_MEMBERS:
                self.complete = False
                return
            if is_read(info):
                self._read += 1
                self.sparse += info.issparse()
            elif info.isdir():
                self.folders += 1
            elif info.islnk() or info.issym():
                self.links += 1
            else:
                self.nameless += info.isreg()
                self.others += not info.isreg()
            yield info
            if not self.plain and info.offset_data + -(-info.size // BLOCK) * BLOCK > _MOST_UNPACKED:
                self.complete = False
                return

    def _add(self, sample: dict[str, Any], shard: BinaryIO) -> None:
        self.samples += 1
        self.repeated += sample[KEY] in self._keys
        self._keys.add(sample[KEY])
        for extension, info in sample.items():
            if not isinstance(info, tarfile.TarInfo):
                continue
            self.sizes.setdefault(extension, _Sizes(info)).add(info.size)
            if self.plain and not info.issparse():
                self.payloads.setdefault(extension, Payload(extension)).add(shard, info)


def describe(path: Path) -> DataDescription:
    """Describes a shard: its members, the fields that every sample has, and odd members.

    Raises:
        DataError: it is damaged, or holds no samples.
    """
    survey = Survey(path)
    if not survey.samples:
        raise DataError(
            f"{path} holds no samples: no member is a regular file with an extension",
            hint="choose another dataset.path; a sample is a run of files such as 0001.jpg and 0001.cls",
        )
    fields, arrays = [], []
    for extension, sizes in survey.sizes.items():
        payload = survey.payloads.get(extension, Payload(extension))
        note = _why_not_read(extension, sizes, payload, survey)
        if not note:
            fields.append(_field(extension, sizes, payload))
        arrays.append(_array(extension, sizes, payload, note))
    return DataDescription(
        tuple(fields),
        {"decode": "basic"},
        survey.samples if survey.complete else None,
        tuple(arrays),
        tuple(_notes(survey)),
        tuple(_questions(survey, fields)),
        {"members_of_a_sample": ", ".join(survey.sizes), "compressed": "no" if survey.plain else "yes"},
    )


def read_content(path: Path, content: dict[str, Any]) -> None:
    """Add ``samples``, ``members`` (extension -> their number), ``compressed`` and ``complete``."""
    survey = Survey(path)
    content |= {
        "samples": survey.samples,
        "members": {extension: sizes.count for extension, sizes in survey.sizes.items()},
        "compressed": not survey.plain,
        "complete": survey.complete,
    }


def _why_not_read(extension: str, sizes: _Sizes, payload: Payload, survey: Survey) -> str:
    """Reason why a member is no field; empty: it is one."""
    if sizes.count < survey.samples:
        missing = survey.samples - sizes.count
        return f"missing in {missing} of {survey.samples} samples; not read unless dataset.fields name it"
    return payload.problem


def _field(extension: str, sizes: _Sizes, payload: Payload) -> FieldConfig:
    if payload.array is not None:
        dtype, shape, rows = payload.array
        return FieldConfig(extension, dtype, list(shape), length_mean=rows)
    if kind_of_extension(extension) == "integer":
        return FieldConfig(extension, "int64")
    return FieldConfig(
        extension, "uint8", length_mean=round(max(1.0, sizes.mean), 1), length_stdev=round(sizes.stdev, 1)
    )


def _array(extension: str, sizes: _Sizes, payload: Payload, note: str) -> StoredArray:
    shape = None
    dtype = {"image": "image", "integer": "integer", "npy": "npy", "stored": "bytes"}[kind_of_extension(extension)]
    if payload.array is not None:
        dtype, inner, rows = payload.array
        shape = None if rows else inner
    if not note and extension.rpartition(".")[2] in PICKLES:
        note = "delivered as stored bytes; pickled objects are never loaded"
    note = note or payload.remark
    if sizes.empty:
        note = f"{note}; " if note else note
        note += f"{sizes.empty} of {sizes.count} are empty"
    return StoredArray(extension, dtype, shape, stored_bytes=sizes.total, note=note)


def _questions(survey: Survey, fields: list[FieldConfig]) -> list[OpenQuestion]:
    if fields:
        return []
    name, sizes = max(survey.sizes.items(), key=lambda item: item[1].count)
    if sizes.count == survey.samples:
        return [
            OpenQuestion("no member can be decoded", f"dataset.fields=[{{name: {name}, dtype: uint8, length_mean: 1}}]")
        ]
    problem = f"no member is in every sample; {name} is in {sizes.count} of {survey.samples}"
    field = f"dataset.fields=[{{name: {name}, dtype: uint8, length_mean: {max(1, round(sizes.mean))}}}]"
    return [OpenQuestion(problem, field), OpenQuestion("other samples can be left out", _SKIP)]


_SKIP = "dataset.webdataset.missing=skip"


def _notes(survey: Survey) -> list[str]:
    notes = []
    images = [name for name in survey.sizes if kind_of_extension(name) == "image"]
    if images:
        notes.append(
            f"images ({', '.join(images[:_SHOWN])}) are read as stored bytes; add dataset.webdataset.decode=rgb8 to "
            "decode them, as most training programs do"
        )
    odd = (
        (survey.folders, "folder", ""),
        (survey.links, "link", ""),
        (survey.others, "device or other special file", "devices or other special files"),
        (survey.nameless, "file without key and extension", "files without key and extension"),
    )
    passed = [counted(count, noun, plural) for count, noun, plural in odd if count]
    if passed:
        notes.append(f"passed over by WebDataset: {', '.join(passed)}")
    if survey.sparse:
        notes.append(f"{counted(survey.sparse, 'sparse file')}, which only access=stream reads")
    if survey.repeated:
        notes.append(
            f"{counted(survey.repeated, 'sample')} with the key of an earlier one: each run of adjacent members is a "
            "sample of its own"
        )
    if not survey.complete:
        notes.append(f"not all headers were read; at least {survey.samples} samples")
    return notes
