"""Options of ``dataset`` and of ``generate``: what is read, and how it is written before.

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
    """One array of a sample (an HDF5 dataset; its name may hold slashes for groups)."""

    name: str = opt("data", "path of the array inside the file, for example 'climate/data'")
    dtype: str = opt("float32", "element type, a NumPy name")
    shape: list[int] = opt([], "shape of one sample (or of one row of a variable-length sample)")
    length_mean: float = opt(0.0, "mean rows of a variable-length sample; 0: fixed length", minimum=0)
    length_stdev: float = opt(0.0, "standard deviation of the rows of a variable-length sample", minimum=0)
    select: list[int] = opt([], "indices along the first axis of a sample that are read; empty: all")
    chunk: list[int] | None = opt(
        None, "chunk shape of the stored array, rows first; null: by chunk_bytes of the format"
    )


@dataclass(frozen=True)
class OnceConfig:
    """A file that each rank opens before its first batch, beside the samples."""

    name: str = opt(
        "",
        "file in the folder of the data, made with them; empty: the first file of samples, whose shapes are looked at",
    )
    split: Literal["train", "eval"] = opt("train", "with an empty name: training or evaluation samples")
    rows: int = opt(1, "rows of each array of fields", minimum=1)
    fields: list[FieldConfig] = opt([], "arrays of the file, which are read one after another")
    columns: list[int] = opt(
        [], "indices along the second axis, read one after another; empty: each array at once (format hdf5)"
    )


@dataclass(frozen=True)
class DatasetOptions:
    """What is read: format and amount, whatever the format."""

    format: str = opt(DEFAULT, "file format, a name of `ls formats`")
    path: str | None = opt(None, "existing file or folder to read instead of generated data")
    root: str = opt("data", "folder below which generated data sets lie")
    num_files: int = opt(1, "training files", minimum=1)
    samples_per_file: int = opt(1024, "samples of a training file", minimum=1)
    num_files_eval: int = opt(0, "evaluation files", minimum=0)
    samples_per_file_eval: int = opt(0, "samples of an evaluation file", minimum=0)
    num_subfolders: int = opt(0, "subfolders over which the files are spread; 0: none", minimum=0)
    fields: list[FieldConfig] = opt([], "arrays of a sample, in the order of reading")
    once: list[OnceConfig] = opt(
        [], "files that each rank opens before its first batch, in this order; a name may come several times"
    )
    direct_io: bool = opt(
        False, "read past the page cache (O_DIRECT); formats whose library reads for them cannot do that"
    )

    def of(self, options: type[OptionsT]) -> OptionsT:
        """The options of a format, by their dataclass.

        Raises:
            LookupError: no format that is installed has them.
        """
        for name, group in _GROUPS.items():
            if group.options is options:
                found: OptionsT = getattr(self, name)
                return found
        raise LookupError(f"no group of dataset is a {options.__name__}")

    def has(self, options: type) -> bool:
        """Whether a group of these options is there."""
        return any(group.options is options for group in _GROUPS.values())


def _with_formats() -> type:
    """The dataclass of ``dataset``: what every format has, and a group of options for each format."""
    groups: list[tuple[str, type, Any]] = [
        (name, group.options, opt(group.options, _about(group.formats))) for name, group in _GROUPS.items()
    ]
    return make_dataclass(
        "DatasetConfig",
        groups,
        bases=(DatasetOptions,),
        frozen=True,
        namespace={"__module__": __name__, "__doc__": "What is read: format, amount, layout."},
    )


def _about(formats: tuple[str, ...]) -> str:
    return f"options of format{'s' if len(formats) > 1 else ''} {' and '.join(formats)}"


_GROUPS = {
    name: group for name, group in option_groups().items() if name not in {one.name for one in fields(DatasetOptions)}
}

if TYPE_CHECKING:

    class DatasetConfig(DatasetOptions):
        """What is read; the options of a format are :meth:`DatasetOptions.of` their dataclass."""

        def __init__(self, **options: Any) -> None: ...

else:
    DatasetConfig = _with_formats()


@dataclass(frozen=True)
class GenerateConfig:
    """How synthetic data are written."""

    num_workers: int = opt(
        0,
        "threads that make payloads on each rank, and files under way at once; 0: one per core",
        minimum=0,
        maximum=MOST_THREADS,
    )
    overwrite: bool = opt(False, "write finished files again")
    fsync: bool = opt(True, "flush each file to the device before it gets its final name")
    checksum: bool = opt(
        False, "read all files afterwards, write the SHA-256 of each to dlio_torch.sha256, and print one of them all"
    )
