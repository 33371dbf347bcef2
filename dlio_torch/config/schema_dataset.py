"""Options of ``dataset`` and ``generate``: the data that a run reads, and the generation of synthetic data.

Each format brings its own options, a group below ``dataset``; the registry of formats knows them.
"""

from __future__ import annotations

from dataclasses import dataclass, fields, make_dataclass
from typing import TYPE_CHECKING, Any, Literal, TypeVar

from dlio_torch.config.extensions import DEFAULT, option_groups
from dlio_torch.config.opt import MOST_THREADS, opt

OptionsT = TypeVar("OptionsT")


@dataclass(frozen=True)
class FieldConfig:
    """One array of a sample (an HDF5 dataset, whose name may contain slashes for groups)."""

    name: str = opt("data", "path of the array inside the file, for example 'climate/data'")
    dtype: str = opt("float32", "element type, as NumPy names it")
    shape: list[int] = opt([], "shape of one sample; for samples of variable length, shape of one row")
    length_mean: float = opt(
        0.0, "mean number of rows of a variable-length sample; 0: all samples have the same shape", minimum=0
    )
    length_stdev: float = opt(0.0, "standard deviation of the number of rows of a variable-length sample", minimum=0)
    select: list[int] = opt([], "indices along the first axis of a sample that are read; empty: all")
    chunk: list[int] | None = opt(
        None,
        "chunk shape of the stored array, whose first axis counts samples (or rows); null: derived from the "
        "format's chunk_bytes",
    )


@dataclass(frozen=True)
class OnceConfig:
    """A file that each rank opens before its first batch, in addition to the samples."""

    name: str = opt(
        "",
        "file in the folder of the data set, generated with it; empty: the first file of samples, opened to "
        "learn the shapes of its arrays",
    )
    split: Literal["train", "eval"] = opt(
        "train", "with an empty name: the split whose first file is opened, training or evaluation"
    )
    rows: int = opt(1, "rows of each array of the file", minimum=1)
    fields: list[FieldConfig] = opt([], "arrays in this file, read completely and in this order")
    columns: list[int] = opt(
        [],
        "indices along the second axis, read one column per call (format hdf5 only); empty: each array is "
        "read in one call",
    )


@dataclass(frozen=True)
class DatasetOptions:
    """Options of every data set: format, number of files, arrays of a sample."""

    format: str = opt(DEFAULT, "file format; `ls formats` lists them")
    path: str | None = opt(
        None,
        "existing file or folder to read, or a pattern with * or {000..009}; null: the data are generated below "
        "dataset.root",
    )
    root: str = opt("data", "folder below which generated data sets lie")
    num_files: int = opt(1, "number of training files", minimum=1)
    samples_per_file: int = opt(1024, "samples in each training file", minimum=1)
    num_files_eval: int = opt(0, "number of evaluation files; 0: none", minimum=0)
    samples_per_file_eval: int = opt(0, "samples in each evaluation file", minimum=0)
    num_subfolders: int = opt(0, "subfolders among which the files are distributed; 0: no subfolders", minimum=0)
    fields: list[FieldConfig] = opt([], "arrays of a sample, in the order of reading")
    once: list[OnceConfig] = opt(
        [], "files that each rank opens before its first batch, in this order; a file may be listed several times"
    )
    direct_io: bool = opt(
        False,
        "read with O_DIRECT, which bypasses the page cache; formats whose library reads the file do not support it",
    )

    def of(self, options: type[OptionsT]) -> OptionsT:
        """The options of a format, by their dataclass.

        Raises:
            LookupError: no format that is installed has them.
        """
        for name, group in _GROUPS.items():
            if group.options is options:
                options_of_format: OptionsT = getattr(self, name)
                return options_of_format
        raise LookupError(f"no group of dataset is a {options.__name__}")

    def has(self, options: type) -> bool:
        """Whether the data set has an option group of the class ``options``."""
        return any(group.options is options for group in _GROUPS.values())


def _with_formats() -> type:
    """Builds the dataclass of ``dataset``: options common to all formats, and one group of options per format."""
    groups: list[tuple[str, type, Any]] = [
        (name, group.options, opt(group.options, _about(group.formats))) for name, group in _GROUPS.items()
    ]
    return make_dataclass(
        "DatasetConfig",
        groups,
        bases=(DatasetOptions,),
        frozen=True,
        namespace={"__module__": __name__, "__doc__": "The data set: format, amount, layout."},
    )


def _about(formats: tuple[str, ...]) -> str:
    return f"options of format{'s' if len(formats) > 1 else ''} {' and '.join(formats)}"


_GROUPS = {
    name: group
    for name, group in option_groups().items()
    if name not in {field.name for field in fields(DatasetOptions)}
}

if TYPE_CHECKING:

    class DatasetConfig(DatasetOptions):
        """The data set; :meth:`DatasetOptions.of` gives the options of a format."""

        def __init__(self, **options: Any) -> None: ...

else:
    DatasetConfig = _with_formats()


@dataclass(frozen=True)
class GenerateConfig:
    """Generation of synthetic data."""

    num_workers: int = opt(
        0,
        "threads of each rank that generate content, and files that it writes at the same time; 0: one per core",
        minimum=0,
        maximum=MOST_THREADS,
    )
    overwrite: bool = opt(False, "write files again that are already complete")
    fsync: bool = opt(True, "flush each file to the device (fsync) before it gets its final name")
    checksum: bool = opt(
        False,
        "read all files after generation, write the SHA-256 of each to dlio_torch.sha256, and print one "
        "checksum for the whole data set",
    )
