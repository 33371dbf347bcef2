"""Labels of images: the numbers of their classes."""

from __future__ import annotations

import numpy as np

from dlio_torch.config.validate_dataset import MOST_SAMPLES
from dlio_torch.formats.core.batch import Sample

LABEL = "label"
"""Name of the class number in a sample."""


def labelled(arrays: Sample, label: int | None) -> Sample:
    """Adds the class number to the arrays of a sample, if there is one."""
    if label is not None:
        arrays[LABEL] = np.asarray(label, np.int64)
    return arrays


def generated_class(sample: int, folders: int) -> int:
    """Class number of a generated image: files, and with them samples, are dealt to the class folders in turn."""
    return sample % MOST_SAMPLES % folders  # evaluation samples are numbered from MOST_SAMPLES on
