"""Options with which a format generates files like existing ones, and reads them as a recorded program did.

The files state their arrays, layout and compression.  What they do not state (what a sample is, how often a file is
opened) follows from the program's samples and its calls.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dlio_torch.config.schema import FieldConfig
from dlio_torch.errors import DataError
from dlio_torch.formats.core.data_description import DataDescription
from dlio_torch.formats.core.registry import facts, load_function

if TYPE_CHECKING:
    import pandas as pd

_HALVINGS = 12
_LEAST_BUFFER = 512
_READS = ("read", "pread", "readv", "preadv")


@dataclass(frozen=True)
class ObservedArray:
    """An array of a sample, as a batch of the program holds it.

    Attributes:
        path: its place in the batch, such as ``0`` or ``image``.
        shape: without the axis of the batch.
        dtype: element type, in the words of torch.
    """

    path: str
    shape: tuple[int, ...]
    dtype: str


@dataclass(frozen=True)
class ObservedReads:
    """How a recorded program read its files.

    Attributes:
        files: paths of all files of the data set, sorted.
        calls: I/O calls on them; columns of the event table, and ``sample`` (index in the program's data set;
            -1: none).
        samples: length of the program's data set; ``None``: not known.
        arrays: arrays of its samples; empty: not known.
    """

    files: tuple[Path, ...]
    calls: pd.DataFrame
    samples: int | None = None
    arrays: tuple[ObservedArray, ...] = ()

    def calls_of(self, *names: str) -> pd.DataFrame:
        """Calls with one of these names, such as ``open``."""
        return self.calls[self.calls["op"].isin(names)]

    @property
    def read_calls(self) -> pd.DataFrame:
        """Calls that read bytes from a known offset on."""
        calls = self.calls
        return calls[calls["op"].isin(_READS) & (calls["bytes"] > 0) & (calls["offset"] >= 0)]

    @property
    def is_mapped(self) -> bool:
        """Whether the files were mapped into memory, and not read by calls."""
        maps = self.calls_of("mmap")
        return bool(len(maps) and maps["bytes"].sum() > self.read_calls["bytes"].sum())

    def samples_read(self) -> int:
        """Number of samples for which there are calls, each time that they were read; 0 if samples are not known."""
        of_samples = self.calls[self.calls["sample"] >= 0]
        return int(of_samples.groupby(["pid", "sample", "batch"]).ngroups)

    def opens_per_sample(self) -> float:
        """Opens that were made for samples, for each sample that was read; 0 if samples are not known."""
        read = self.samples_read()
        opens = (self.calls["sample"] >= 0) & (self.calls["op"] == "open")
        return float(opens.sum() / read) if read else 0.0

    def first_read_bytes(self) -> int:
        """Most frequent size of the first read after an open, which fills the buffer of the open file; 0: none."""
        calls = self.calls[(self.calls["op"] == "open") | self.calls["op"].isin(_READS)]
        opens = (calls["op"] == "open").groupby([calls["pid"], calls["file"]], observed=True).cumsum()
        reads = calls.assign(number=opens)[calls["op"].isin(_READS) & (opens > 0)]
        first = reads.groupby(["pid", "file", "number"], observed=True)["bytes"].first()
        return int(first.mode().iloc[0]) if len(first) else 0

    def buffer_option(self) -> dict[str, int]:
        """Option ``buffer_bytes`` of formats that read through a buffer; empty: it is the block size of the files."""
        size, blocks = self.first_read_bytes(), {os.stat(path).st_blksize for path in self.files[:1]}
        is_buffer = size >= _LEAST_BUFFER and size % _LEAST_BUFFER == 0 and size not in blocks
        return {"buffer_bytes": size} if is_buffer else {}


@dataclass(frozen=True)
class Recreation:
    """Options that generate files like existing ones, and read them in the same way.

    Attributes:
        fields: ``dataset.fields``.
        options: options of the format's group.
        dataset: other options of the group ``dataset``, such as ``num_subfolders``; not the number of files.
        format: another format that generates the same files and reads them as the program did; empty: the same.
        files: number of files; ``None``: as many as were recognised.
        samples_per_file: samples in each generated file; ``None``: as many as the mean of the existing ones.
        data_files: paths of the files on which the options make the recorded calls; empty: all of the data set.
        evidence: for options that follow from the program and not from the files, what it did: key of ``options`` or
            ``dataset``, or ``fields`` -> one line.
        differences: what is not the same with these options, one line each.
    """

    fields: tuple[FieldConfig, ...] = ()
    options: Mapping[str, Any] = field(default_factory=dict)
    dataset: Mapping[str, Any] = field(default_factory=dict)
    format: str = ""
    files: int | None = None
    samples_per_file: int | None = None
    data_files: Sequence[Path] = ()
    evidence: Mapping[str, str] = field(default_factory=dict)
    differences: Sequence[str] = ()


def recreation(format_name: str, description: DataDescription, reads: ObservedReads) -> Recreation:
    """The recreation of existing files.

    Args:
        format_name: value of ``dataset.format``.
        description: of one of the files, or of the folder that is the data set.
        reads: how the program read them.

    Raises:
        DataError: a file cannot be read, it stays open what a sample is, or the format generates no files like these.
    """
    function = facts(format_name).recreate
    if not function:
        raise DataError(f"format {format_name} has no options that generate files like existing ones")
    result: Recreation = load_function(format_name, function)(description, reads)
    return result


def as_described(description: DataDescription, reads: ObservedReads) -> Recreation:
    """The recreation of files that the options which read them also generate."""
    answers = {question.setting.partition("=")[0].rpartition(".")[2] for question in description.questions}
    options = dict(description.options)
    if "samples" in answers and reads.samples is not None:
        options["samples"] = "file" if reads.samples == len(reads.files) else "rows"
    differences = [
        f"array {array.name} is compressed by {array.compression}, generated ones are not"
        for array in description.arrays
        if array.compression
    ]
    per_file = 1 if options.get("samples") == "file" else None
    return Recreation(description.fields, options, samples_per_file=per_file, differences=tuple(differences))


def named_fields(fields: Sequence[FieldConfig], reads: ObservedReads) -> tuple[tuple[FieldConfig, ...], list[str]]:
    """Fields whose names are those of arrays in a batch, and the names of the others; all if no name agrees.

    Args:
        fields: arrays of a sample in the files.
        reads: of the program.
    """
    names = {array.path.rpartition(".")[2] for array in reads.arrays}
    kept = tuple(entry for entry in fields if entry.name in names) or tuple(fields)
    return kept, [entry.name for entry in fields if entry not in kept]


def compressibility(content_bytes: int, stored_bytes: int) -> float:
    """Share of constant content with which generated content is compressed to as many bytes.

    Args:
        content_bytes: size of the content in memory.
        stored_bytes: its size in the file.
    """
    return round(min(max(1 - stored_bytes / content_bytes, 0.0), 1.0), 3) if content_bytes else 0.0


def fitted_compressibility(ratio: float, stored_share: Callable[[float], float]) -> float:
    """Share of constant content at which a trial has a wanted compression ratio; 0 if random content is smaller.

    Args:
        ratio: stored bytes / bytes in memory.
        stored_share: the ratio of a trial with a share of constant content.
    """
    low, high = 0.0, 1.0
    for _ in range(_HALVINGS):
        middle = (low + high) / 2
        low, high = (middle, high) if stored_share(middle) > ratio else (low, middle)
    return round((low + high) / 2, 4) if low > 0 else 0.0
