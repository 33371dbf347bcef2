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
        "buffer of a file: 4 MiB on Lustre, 4 KiB on ext4; 0: the file system's st_blksize",
        unit="B",
        minimum=0,
        maximum=LARGEST_CALL,
    )
    compressed: bool = opt(False, "deflate the members of an archive, as numpy.savez_compressed does")
    compressibility: float = opt(
        0.0, "share of an archive's payload that is constant: 0 random, 1 all zero", minimum=0, maximum=1
    )
    sample_axis: Literal["first", "last"] = opt(
        "first", "axis along which the samples of an archive with several are stacked; DLIO stacks along the last"
    )
    pickled: list[str] = opt(
        [],
        "members of an archive that are pickled dictionaries of arrays, which are never unpickled: a field MEMBER/KEY "
        "is the array KEY of MEMBER",
    )
