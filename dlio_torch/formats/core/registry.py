"""Names of formats, and where each is implemented.

The table holds strings so that listing the formats imports none of them.  An installed package adds
a format through the entry point group ``dlio_torch.formats``: ``name = "package.module:Class"``.
"""

from __future__ import annotations

import contextlib
import difflib
import importlib
from importlib.metadata import entry_points
from typing import TYPE_CHECKING

from dlio_torch.errors import ConfigError, MissingPackageError, PreconditionError

if TYPE_CHECKING:
    from dlio_torch.config.schema import DatasetConfig
    from dlio_torch.formats.core.format import Format

BUILTIN: dict[str, str] = {
    "adios2": "dlio_torch.formats.adios2.format:Adios2Format",
    "jpeg": "dlio_torch.formats.image.format:JpegFormat",
    "parquet": "dlio_torch.formats.parquet.format:ParquetFormat",
    "png": "dlio_torch.formats.image.format:PngFormat",
    "csv": "dlio_torch.formats.csv.format:CsvFormat",
    "hdf5": "dlio_torch.formats.hdf5.format:Hdf5Format",
    "hdf5_volume": "dlio_torch.formats.hdf5_volume.format:Hdf5VolumeFormat",
    "larcv3": "dlio_torch.formats.larcv3.format:Larcv3Format",
    "netcdf": "dlio_torch.formats.netcdf.format:NetcdfFormat",
    "netcdf_cf": "dlio_torch.formats.netcdf.cf:NetcdfCfFormat",
    "npz": "dlio_torch.formats.numpy.npz:NpzFormat",
    "npy": "dlio_torch.formats.numpy.npy:NpyFormat",
    "indexed_binary": "dlio_torch.formats.indexed_binary.format:IndexedBinaryFormat",
    "silo": "dlio_torch.formats.silo.format:SiloFormat",
    "synthetic": "dlio_torch.formats.synthetic.format:SyntheticFormat",
    "tfrecord": "dlio_torch.formats.tfrecord.format:TfrecordFormat",
}


def available() -> dict[str, str]:
    """Every format: name -> ``module:Class``; a built-in one wins over an entry point of its name."""
    found = {point.name: point.value for point in entry_points(group="dlio_torch.formats")}
    return {**found, **BUILTIN}


def create(config: DatasetConfig, seed: int, *, places: bool = False, mpi_io: bool = False) -> Format:
    """The format that ``dataset.format`` names.

    Args:
        config: the options of ``dataset``.
        seed: of the content.
        places: it must tell where samples lie, for ``loader.engine=decoupled``.
        mpi_io: it must be readable by MPI-IO, for ``access.io`` other than ``posix``.

    Raises:
        ConfigError: no such format, or it cannot read past the page cache as ``dataset.direct_io`` asks, or it
            cannot tell places.
        MissingPackageError: the format needs a package that is not installed.
        PreconditionError: the entry point of an installed package names a class that is not there.
    """
    target = BUILTIN.get(config.format)  # without a look at every installed package
    if target is None:
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
    if config.direct_io and cls.needs_files and not cls.reads_direct:
        raise ConfigError(
            f"dataset.direct_io=true with dataset.format={config.format!r}: its library reads through the page cache",
            hint="set dataset.direct_io=false and cache=cold, or a format that can: "
            + ", ".join(_that(available(), "reads_direct")),
        )
    if places and not cls.has_places:
        raise ConfigError(
            f"loader.engine=decoupled with dataset.format={config.format!r}: it does not tell where its samples lie",
            hint=f"set loader.engine=dataloader, or a format that can: {', '.join(_that(available(), 'has_places'))}",
        )
    if mpi_io and cls.mpi_io == "no":
        raise ConfigError(
            f"access.io with dataset.format={config.format!r}: MPI-IO reads stretches of bytes, its samples are none",
            hint=f"set access.io=posix, or a format that can: {', '.join(_that(available(), 'mpi_io'))}",
        )
    return cls(config, seed)


def _that(table: dict[str, str], ability: str) -> list[str]:
    """Formats that have an ability (an attribute of :class:`Format`), of those that can be imported here."""
    found = []
    for name, target in sorted(table.items()):
        module, _, attribute = target.partition(":")
        with contextlib.suppress(ImportError):
            if getattr(getattr(importlib.import_module(module), attribute, None), ability, False) not in (False, "no"):
                found.append(name)
    return found
