"""Verification of samples that were read: counts, order and content."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from dlio_torch.data.dataset.manifest import Manifest
from dlio_torch.errors import DataError
from dlio_torch.formats.core.batch import Batch, Sample, samples_of
from dlio_torch.formats.core.byte_origin import locate_byte
from dlio_torch.formats.core.format import Format
from dlio_torch.formats.core.layout import Ints


def check_count(path: Path, actual: int, expected: int) -> None:
    """Raise unless a file holds the number of samples that the data set expects.

    Raises:
        DataError: it does not.
    """
    if actual != expected:
        raise DataError(
            f"{path} holds {actual} samples, expected {expected}",
            hint="the file was replaced or damaged; remove the file and generate the data again",
        )


def check_counts(epoch: int, came: Ints, due: Ints) -> None:
    """Raise unless each sample was delivered in an epoch as often as the access pattern requires.

    Args:
        epoch: number, from 1.
        came: numbers of the samples that came.
        due: numbers of those that should, each as often as it should.

    Raises:
        DataError: another one came, or one came more or less often; names the first.
    """
    samples = np.union1d(came, due)
    counts, wanted = (np.zeros(len(samples), np.int64) for _ in range(2))
    for numbers, into in ((came, counts), (due, wanted)):
        distinct, times = np.unique(numbers, return_counts=True)
        into[np.searchsorted(samples, distinct)] = times
    wrong = np.flatnonzero(counts != wanted)
    if len(wrong):
        first = wrong[0]
        raise DataError(
            f"epoch {epoch}: {len(wrong)} samples were not delivered as often as access.order requires: sample "
            f"{samples[first]} was delivered {counts[first]} times, not {wanted[first]}",
            hint="report this as a bug of dlio_torch: the samples are intact, but the loader delivered other "
            "samples than requested",
        )


def check_contents(batch: Batch, fmt: Format, manifest: Manifest) -> None:
    """Compare a batch with the generated content.

    Raises:
        DataError: it holds other content; names the file, the sample, and the place where that is known.
    """
    for index, sample in samples_of(batch, fmt.specs()):
        if fmt.difference(manifest.first_sample + index, sample) is not None:
            raise _wrong(index, sample, fmt, manifest)


def _wrong(index: int, sample: Sample, fmt: Format, manifest: Manifest) -> DataError:
    file, row = manifest.locate(index)
    path, number = manifest.path(file), manifest.first_sample + index
    difference = fmt.difference(number, sample)
    assert difference is not None
    location = f"sample {index} of {manifest.split}"
    if difference.byte is not None and fmt.needs_files:
        position = locate_byte(fmt, path, row, difference.array, difference.byte)
        location += f", {position}" if position else ", at an unknown position in the file"
    return DataError(
        f"{path}: sample {row} differs from the generated content in array {difference.array}: {difference.text}; "
        f"{location}",
        hint="the file is damaged, or was replaced by another file; remove the file and generate the data again",
    )
