"""Number of samples in a NumPy file, and names of the files that hold the fields of a sample."""

from __future__ import annotations

from collections.abc import Sequence

from dlio_torch.config.schema import DatasetConfig
from dlio_torch.errors import ConfigError
from dlio_torch.formats.core.batch import ArraySpec
from dlio_torch.formats.core.stacking import is_stacked
from dlio_torch.formats.numpy.options import NpzConfig

SAMPLES_OPTION = (
    "dataset.npz.samples_in_file (one: a file is one unstacked sample; by_count: dataset.samples_per_file decides)"
)
"""The option to correct where an array has an axis more or less than its samples; for messages."""


def stacks_samples(config: DatasetConfig) -> bool:
    """Whether files hold several samples, stacked along an axis.

    Raises:
        ConfigError: the options contradict each other.
    """
    options = config.of(NpzConfig)
    if options.samples_in_file == "by_count":
        return is_stacked(config)
    stacked = options.samples_in_file == "stacked"
    if not stacked and config.path is None and is_stacked(config):
        raise ConfigError(
            f"dataset.npz.samples_in_file=one cannot be used with dataset.samples_per_file={config.samples_per_file}",
            hint="set dataset.samples_per_file=1, or dataset.npz.samples_in_file=stacked",
        )
    return stacked


def file_suffixes(config: DatasetConfig, specs: Sequence[ArraySpec]) -> list[str]:
    """Ends of the names of the files that hold each field of a sample, with ``.npy``.

    Raises:
        ConfigError: the suffixes cannot tell the files apart.
    """
    suffixes = config.of(NpzConfig).field_suffixes
    if not suffixes:
        return [f"_{spec.name}.npy" for spec in specs] if len(specs) > 1 else [".npy"]
    key = f"dataset.npz.field_suffixes={suffixes}"
    if len(suffixes) != len(specs):
        raise ConfigError(
            f"{key} names {len(suffixes)} files, but dataset.fields has {len(specs)} fields",
            hint="give one suffix for each field, in the order of the fields",
        )
    for number, suffix in enumerate(suffixes):
        if not suffix or "/" in suffix:
            raise ConfigError(
                f"{key}: {suffix!r} cannot end a file name", hint="use parts of file names, for example [_img, _seg]"
            )
        if any(other.endswith(suffix) for place, other in enumerate(suffixes) if place != number):
            raise ConfigError(
                f"{key}: {suffix!r} is the end of another suffix",
                hint="begin each suffix at a place where the names differ, for example with the underscore",
            )
    return [f"{suffix}.npy" for suffix in suffixes]
