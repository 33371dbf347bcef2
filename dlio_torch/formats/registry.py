"""Names of formats, and where each is implemented.

The table holds strings so that listing the formats imports none of them.  An installed package adds
a format through the entry point group ``dlio_torch.formats``: ``name = "package.module:Class"``.
"""

from __future__ import annotations

import difflib
import importlib
from importlib.metadata import entry_points
from typing import TYPE_CHECKING

from dlio_torch.errors import ConfigError, MissingPackageError, PreconditionError

if TYPE_CHECKING:
    from dlio_torch.config.schema import DatasetConfig
    from dlio_torch.formats.base import Format

BUILTIN: dict[str, str] = {
    "jpeg": "dlio_torch.formats.image:JpegFormat",
    "parquet": "dlio_torch.formats.parquet:ParquetFormat",
    "png": "dlio_torch.formats.image:PngFormat",
    "csv": "dlio_torch.formats.csv:CsvFormat",
    "hdf5": "dlio_torch.formats.hdf5:Hdf5Format",
    "hdf5_volume": "dlio_torch.formats.hdf5_volume:Hdf5VolumeFormat",
    "larcv3": "dlio_torch.formats.larcv3:Larcv3Format",
    "npz": "dlio_torch.formats.npz:NpzFormat",
    "npy": "dlio_torch.formats.npy:NpyFormat",
    "indexed_binary": "dlio_torch.formats.indexed_binary:IndexedBinaryFormat",
    "synthetic": "dlio_torch.formats.synthetic:SyntheticFormat",
    "tfrecord": "dlio_torch.formats.tfrecord:TfrecordFormat",
}


def available() -> dict[str, str]:
    """Every format: name -> ``module:Class``; a built-in one wins over an entry point of its name."""
    found = {point.name: point.value for point in entry_points(group="dlio_torch.formats")}
    return {**found, **BUILTIN}


def create(config: DatasetConfig, seed: int) -> Format:
    """The format that ``dataset.format`` names.

    Raises:
        ConfigError: no such format.
        MissingPackageError: the format needs a package that is not installed.
        PreconditionError: the entry point of an installed package names a class that is not there.
    """
    table = available()
    target = table.get(config.format)
    if target is None:
        near = difflib.get_close_matches(config.format, table, n=1)
        raise ConfigError(
            f"dataset.format={config.format!r} is no known format",
            hint=(f"did you mean {near[0]!r}? " if near else "") + f"known formats: {', '.join(sorted(table))}",
        )
    name, _, attribute = target.partition(":")
    try:
        module = importlib.import_module(name)
    except ImportError as error:
        raise MissingPackageError(
            f"dataset.format={config.format!r} needs a package that is not installed ({error})",
            hint=f"install the package that provides {error.name!r}" if error.name else "install it",
        ) from error
    cls: type[Format] | None = getattr(module, attribute, None)
    if cls is None:
        raise PreconditionError(
            f"dataset.format={config.format!r}: {name} has no {attribute!r}",
            hint=f"the package that adds the format names {target!r} in its entry point; correct it there",
        )
    return cls(config, seed)
