"""Registry of formats: names, facts and creation.

The table holds strings so that listing the formats imports none of them.  An installed package adds
a format through the entry point group ``dlio_torch.formats``: ``name = "package.module:Class"``, where the class is
the :class:`~dlio_torch.formats.core.facts.FormatFacts` of the format, or the format itself if it has no options.
"""

from __future__ import annotations

import contextlib
import difflib
import importlib
from dataclasses import dataclass
from importlib.metadata import entry_points
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dlio_torch.errors import ConfigError, MissingPackageError, PreconditionError
from dlio_torch.formats.core.facts import FormatFacts

if TYPE_CHECKING:
    from dlio_torch.config.schema import DatasetConfig
    from dlio_torch.formats.core.format import Format

BUILTIN: dict[str, str] = {
    "hdf5": "dlio_torch.formats.hdf5.facts:Hdf5Facts",
    "hdf5_crops": "dlio_torch.formats.hdf5.facts:Hdf5CropsFacts",
    "larcv3": "dlio_torch.formats.larcv3.facts:Larcv3Facts",
    "hdf5_volume": "dlio_torch.formats.hdf5_volume.facts:Hdf5VolumeFacts",
    "tfrecord": "dlio_torch.formats.tfrecord.facts:TfrecordFacts",
    "csv": "dlio_torch.formats.csv.facts:CsvFacts",
    "npz": "dlio_torch.formats.numpy.facts:NpzFacts",
    "npy": "dlio_torch.formats.numpy.facts:NpyFacts",
    "jpeg": "dlio_torch.formats.image.facts:JpegFacts",
    "png": "dlio_torch.formats.image.facts:PngFacts",
    "imagefolder": "dlio_torch.formats.image.facts:ImageFolderFacts",
    "indexed_binary": "dlio_torch.formats.indexed_binary.facts:IndexedBinaryFacts",
    "tokens": "dlio_torch.formats.tokens.facts:TokensFacts",
    "parquet": "dlio_torch.formats.parquet.facts:ParquetFacts",
    "zarr": "dlio_torch.formats.zarr.facts:ZarrFacts",
    "safetensors": "dlio_torch.formats.safetensors.facts:SafetensorsFacts",
    "arrow": "dlio_torch.formats.arrow.facts:ArrowFacts",
    "webdataset": "dlio_torch.formats.webdataset.facts:WebdatasetFacts",
    "mds": "dlio_torch.formats.mds.facts:MdsFacts",
    "adios2": "dlio_torch.formats.adios2.facts:Adios2Facts",
    "netcdf": "dlio_torch.formats.netcdf.facts:NetcdfFacts",
    "netcdf_cf": "dlio_torch.formats.netcdf.facts:NetcdfCfFacts",
    "silo": "dlio_torch.formats.silo.facts:SiloFacts",
    "lmdb": "dlio_torch.formats.lmdb.facts:LmdbFacts",
    "extents": "dlio_torch.formats.extents.facts:ExtentsFacts",
    "synthetic": "dlio_torch.formats.synthetic.facts:SyntheticFacts",
}
"""Format name -> class of its facts, in the order in which the formats' options are listed."""

DEFAULT = next(iter(BUILTIN))
"""Default format of a recipe."""


@dataclass(frozen=True)
class OptionGroup:
    """Group of format options below ``dataset``.

    Attributes:
        options: frozen dataclass of the options.
        formats: names of the formats that have them.
    """

    options: type
    formats: tuple[str, ...]


def available() -> dict[str, str]:
    """All formats, name -> ``module:Class``; a built-in format hides an entry point of the same name."""
    plugins = {point.name: point.value for point in entry_points(group="dlio_torch.formats")}
    return {**plugins, **BUILTIN}


def read_content(about: FormatFacts, path: Path, content: dict[str, Any]) -> None:
    """Add a description of the file's content to ``content``, if the format can describe it."""
    if about.content:
        load_function(about.name, about.content)(path, content)


def format_class(name: str) -> type[Format]:
    """The class of a format.

    Raises:
        ConfigError: no such format.
        MissingPackageError: the format needs a package that is not installed.
        PreconditionError: the entry point of an installed package names a class that is not there.
    """
    cls: type[Format] = _loaded(name, facts(name).format)
    return cls


def load_function(name: str, target: str) -> Any:
    """Imports the function ``module:function`` of format ``name``.

    Raises:
        MissingPackageError: its module needs a package that is not installed.
        PreconditionError: it is not there.
    """
    return _loaded(name, target)


def option_groups() -> dict[str, OptionGroup]:
    """Option groups of all formats by name, built-in formats first."""
    groups: dict[str, OptionGroup] = {}
    for about in all_facts():
        group, options = about.option_group, about.options
        if options is not None:
            known = groups.setdefault(group, OptionGroup(options, ()))
            if known.options is options:
                groups[group] = OptionGroup(options, (*known.formats, about.name))
    return groups


def facts(name: str) -> FormatFacts:
    """Facts about the format of the given name.

    Raises:
        ConfigError: no such format.
        MissingPackageError: its facts need a package that is not installed.
        PreconditionError: the entry point of an installed package names a class that is not there.
    """
    target = _target(name)
    named = _loaded(name, target)
    if not issubclass(named, FormatFacts):  # the format itself, which has no options
        named = type(named.__name__, (FormatFacts,), {"name": name, "format": target})
    about: FormatFacts = named()
    return about


def all_facts() -> list[FormatFacts]:
    """Facts about every format, built-in formats first; third-party formats that cannot be imported are left out.

    Its own use names what is broken about it.
    """
    known = []
    for name in (*BUILTIN, *sorted(available().keys() - BUILTIN.keys())):
        with contextlib.suppress(*() if name in BUILTIN else (Exception,)):
            known.append(facts(name))
    return known


def create(config: DatasetConfig, seed: int, *, layout: bool = False, mpi_io: bool = False) -> Format:
    """Creates the format that ``dataset.format`` names.

    Args:
        config: the options of ``dataset``.
        seed: of the content.
        layout: it must tell where samples lie, for ``loader.engine=decoupled``.
        mpi_io: it must be readable by MPI-IO, for ``access.io`` other than ``posix``.

    Raises:
        ConfigError: no such format, or it cannot read past the page cache as ``dataset.direct_io`` asks, or it
            cannot tell where samples lie.
        MissingPackageError: the format needs a package that is not installed.
        PreconditionError: the entry point of an installed package names a class that is not there, or its options
            have the name of others.
    """
    about = facts(config.format)
    cls = format_class(config.format)
    if about.options is not None and not config.has(about.options):
        raise PreconditionError(
            f"dataset.format={config.format!r}: the format's option group dataset.{about.option_group} is already "
            "used by dlio_torch or another format",
            hint=f"change {type(about).__qualname__}.group in the package that adds the format",
        )
    if config.direct_io and cls.needs_files and not cls.reads_direct:
        raise ConfigError(
            f"dataset.direct_io=true cannot be used with dataset.format={config.format!r}, whose library reads "
            "through the page cache",
            hint="set dataset.direct_io=false and cache=cold, or choose a format with direct reads: "
            + ", ".join(_that("reads_direct")),
        )
    if layout and not cls.has_layout:
        raise ConfigError(
            f"loader.engine=decoupled cannot read dataset.format={config.format!r}, which provides no extents "
            "(offset, length) of its samples",
            hint=f"set loader.engine=dataloader, or choose a format with extents: {', '.join(_that('has_layout'))}",
        )
    if mpi_io and cls.mpi_io == "no":
        raise ConfigError(
            f"access.io (MPI-IO) cannot read dataset.format={config.format!r}, whose samples are not contiguous byte "
            "ranges",
            hint=f"set access.io=posix, or choose a format that MPI-IO can read: {', '.join(_that('mpi_io'))}",
        )
    return cls(config, seed)


def _target(name: str) -> str:
    target = BUILTIN.get(name)  # without a look at every installed package
    if target is not None:
        return target
    table = available()
    if name in table:
        return table[name]
    near = difflib.get_close_matches(name, table, n=1)
    raise ConfigError(
        f"dataset.format={name!r} is not a known format",
        hint=(f"did you mean {near[0]!r}? " if near else "") + f"known formats: {', '.join(sorted(table))}",
    )


def _loaded(name: str, target: str) -> Any:
    """Imports the class ``module:Class`` of format ``name``."""
    module_name, _, attribute = target.partition(":")
    try:
        module = importlib.import_module(module_name)
    except ImportError as error:
        raise MissingPackageError(
            f"dataset.format={name!r} needs a package that is not installed ({error})",
            hint=f"install the package that provides {error.name!r}" if error.name else "install it",
        ) from error
    loaded = getattr(module, attribute, None)
    if loaded is None:
        raise PreconditionError(
            f"dataset.format={name!r}: module {module_name} has no class {attribute!r}",
            hint=f"correct the entry point {target!r} in the package that adds the format",
        )
    return loaded


def _that(ability: str) -> list[str]:
    """Names of the importable formats whose given class attribute of :class:`Format` is true."""
    names = []
    for name in sorted(available()):
        with contextlib.suppress(MissingPackageError, PreconditionError):
            if getattr(format_class(name), ability, False) not in (False, "no"):
                names.append(name)
    return names
