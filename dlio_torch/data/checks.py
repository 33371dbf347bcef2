"""Comparing what was read with what the data set is."""

from __future__ import annotations

from pathlib import Path

from dlio_torch.data.layout import Manifest
from dlio_torch.errors import DataError
from dlio_torch.formats.base import Format
from dlio_torch.formats.batch import Batch, samples_of


def check_count(path: Path, found: int, expected: int) -> None:
    """Raise unless a file holds as many samples as the data set has in it.

    Raises:
        DataError: it does not.
    """
    if found != expected:
        raise DataError(
            f"{path} holds {found} samples, the data set has {expected} in it",
            hint="the file was replaced or damaged; remove it and generate again",
        )


def check_contents(batch: Batch, fmt: Format, manifest: Manifest) -> None:
    """Compare a batch with what was generated.

    Raises:
        DataError: it holds other content.
    """
    for index, sample in samples_of(batch, fmt.specs()):
        difference = fmt.differences(manifest.first_sample + index, sample)
        if difference is not None:
            file, row = manifest.locate(index)
            raise DataError(
                f"{manifest.path(file)}: sample {row} is not what was generated: {difference}",
                hint="the file is damaged; remove it and generate again",
            )
