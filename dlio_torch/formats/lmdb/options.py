"""Options of LMDB environments: ``dataset.lmdb``."""

from __future__ import annotations

from dataclasses import dataclass

from dlio_torch.config.opt import opt


@dataclass(frozen=True)
class LmdbConfig:
    """LMDB environments: one entry for each array of a sample."""

    key: str = opt(
        "{index:08d}",
        "key of an entry, a Python format of {index}, the position in the file, and {field}, which several fields "
        "need; empty: all keys of the tree in its order, which are listed when a file is opened",
    )
    first_index: int = opt(0, "index of the first sample of a file", minimum=0)
    other_entries: list[str] = opt([], "keys that are no samples, for example [__len__, __keys__]")
    subdir: bool = opt(True, "generated environments are folders with data.mdb; false: single files")
    readahead: bool = opt(
        False, "lmdb.open(readahead=): true: the kernel reads ahead at a page fault; false: it reads single pages"
    )
    lock: bool = opt(False, "lmdb.open(lock=): register readers in a lock file, which must be writable")
    max_readers: int = opt(126, "lmdb.open(max_readers=): readers for which the lock file has room", minimum=1)
