"""Checksums of the files of a data set, by which two sites can compare their copies.

``dlio_torch.sha256`` in the folder of the data set has a line for each file, by name, as sha256sum(1) writes it: so
``sha256sum --check dlio_torch.sha256`` finds what has changed.  The checksum of the data set is the SHA-256 of this
text.  The bytes of generated files depend on the configuration and the seed, and on the version of the library that
writes them; not on place, time, host, threads or ranks.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from dlio_torch.data.dataset.manifest import Manifest
from dlio_torch.dist.base import Communicator
from dlio_torch.formats.core.format import Format
from dlio_torch.storage.registry import open_storage
from dlio_torch.syserrors import refused, unreadable

CHECKSUMS = "dlio_torch.sha256"
_PIECE = 1 << 20


def make_checksums(folder: Path, manifests: list[Manifest], fmt: Format, comm: Communicator, threads: int) -> str:
    """Read all files of a data set in parallel on all ranks and write their checksums; returns the data set's checksum.

    Raises:
        DataError: a file cannot be read.
        DlioError: the checksums cannot be written (see :mod:`dlio_torch.syserrors`).
    """
    paths = [
        file
        for manifest in manifests
        for number in range(comm.rank, manifest.num_files, comm.world_size)
        for path in fmt.files(manifest.path(number))
        for file in _below(path)
    ]
    with ThreadPoolExecutor(threads) as pool:
        mine = list(zip((path.relative_to(folder).as_posix() for path in paths), pool.map(_digest, paths), strict=True))
    everyone = comm.gather_objects(mine)
    computed = None
    if everyone is not None:
        lines = sorted(line for digests in everyone for line in digests)
        text = "".join(f"{digest}  {name}\n" for name, digest in lines)
        try:
            open_storage(folder).put(CHECKSUMS, text.encode(), durable=False)
        except OSError as error:
            raise refused(f"{folder / CHECKSUMS} cannot be written", error) from error
        computed = hashlib.sha256(text.encode()).hexdigest()
    checksum: str | None = comm.broadcast_object(computed)
    assert checksum is not None
    return checksum


def known_checksum(folder: Path) -> str | None:
    """The last recorded checksum of a data set; ``None`` if none was recorded.

    Raises:
        DataError: it cannot be read.
    """
    try:
        return hashlib.sha256((folder / CHECKSUMS).read_bytes()).hexdigest()
    except (FileNotFoundError, NotADirectoryError):
        return None
    except OSError as error:
        raise unreadable(folder / CHECKSUMS, error) from error


def _below(path: Path) -> Iterator[Path]:
    """The file itself, or the files in it if the format stores a folder."""
    if not path.is_dir():
        yield path
        return
    for entry in sorted(path.rglob("*")):
        if not entry.is_dir():
            yield entry


def _digest(path: Path) -> str:
    digest = hashlib.sha256()
    buffer = memoryview(bytearray(_PIECE))
    try:
        with open(path, "rb", buffering=0) as file:
            while count := file.readinto(buffer):
                digest.update(buffer[:count])
    except OSError as error:
        raise unreadable(path, error) from error
    return digest.hexdigest()
