"""Options with which a format generates files like existing ones, and reads them as a recorded program did.

The files state their arrays, layout and compression.  What they do not state (what a sample is, how often a file is
opened) follows from the program's samples and its calls.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dlio_torch.config.schema import FieldConfig
from dlio_torch.formats.core.data_description import DataDescription
from dlio_torch.formats.core.registry import facts, load_function

if TYPE_CHECKING:
    import pandas as pd


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

    def opens_per_sample(self) -> float:
        """Opens that were made for samples, for each sample that was read; 0 if samples are not known."""
        of_samples = self.calls[self.calls["sample"] >= 0]
        read = of_samples.groupby(["pid", "tid", "sample", "batch"]).ngroups
        return float((of_samples["op"] == "open").sum() / read) if read else 0.0


@dataclass(frozen=True)
class Recreation:
    """Options that generate files like existing ones, and read them in the same way.

    Attributes:
        fields: ``dataset.fields``.
        options: options of the format's group.
        dataset: other options of the group ``dataset``, such as ``num_subfolders``; not the number of files.
        samples_per_file: samples in each generated file; ``None``: as many as the mean of the existing ones.
        evidence: for options that follow from the program and not from the files, what it did: key of ``options`` or
            ``dataset`` -> one line.
        differences: what is not the same with these options, one line each.
    """

    fields: tuple[FieldConfig, ...] = ()
    options: Mapping[str, Any] = field(default_factory=dict)
    dataset: Mapping[str, Any] = field(default_factory=dict)
    samples_per_file: int | None = None
    evidence: Mapping[str, str] = field(default_factory=dict)
    differences: Sequence[str] = ()


def recreation(format_name: str, description: DataDescription, reads: ObservedReads) -> Recreation:
    """The recreation of existing files.

    Args:
        format_name: value of ``dataset.format``.
        description: of one of the files, or of the folder that is the data set.
        reads: how the program read them.

    Raises:
        DataError: a file cannot be read, or it stays open what a sample is.
    """
    function = facts(format_name).recreate
    if not function:
        return Recreation(description.fields, dict(description.options))
    result: Recreation = load_function(format_name, function)(description, reads)
    return result
