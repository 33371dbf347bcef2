"""Options of NumPy's files: ``dataset.npz``, for npz and npy."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from dlio_torch.config.opt import LARGEST_CALL, opt


@dataclass(frozen=True)
class NpzConfig:
    """NumPy's zip archives and single-array files, read through Python's own file layers."""

    buffer_bytes: int = opt(
        0,
        "buffer of an open file; 0: st_blksize of the file system (4 KiB on ext4, 4 MiB on Lustre)",
        unit="B",
        minimum=0,
        maximum=LARGEST_CALL,
    )
    compressed: bool = opt(False, "deflate the members of an archive, as numpy.savez_compressed does")
    compressibility: float = opt(
        0.0, "share of an archive's content that is constant; 0: all random; 1: all zero", minimum=0, maximum=1
    )
    samples_in_file: Literal["by_count", "one", "stacked"] = opt(
        "by_count",
        "one: the arrays of a file are one sample; stacked: samples lie along sample_axis; by_count: stacked if "
        "dataset.samples_per_file is above 1",
    )
    sample_axis: Literal["first", "last"] = opt(
        "first", "axis along which an archive stacks several samples; DLIO stacks along the last"
    )
    field_suffixes: list[str] = opt(
        [],
        "for format npy with several fields: ends of the file names of each field, without .npy, for example "
        "[_img, _seg]; empty: _<name of the field>",
    )
    pickled: list[str] = opt(
        [],
        "members of an archive that are pickled dictionaries of arrays; field MEMBER/KEY is the array KEY of "
        "MEMBER, read without unpickling",
    )
