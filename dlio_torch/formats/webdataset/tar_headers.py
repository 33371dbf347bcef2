"""Headers of a tar archive: recognition, and the list of its members without a read of their content."""

from __future__ import annotations

import tarfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Self

from dlio_torch.errors import DataError, DlioError
from dlio_torch.formats.core.file_errors import open_error

BLOCK = tarfile.BLOCKSIZE
"""Bytes of a header; the content of a member is padded to a multiple of it."""

RECORD = tarfile.RECORDSIZE
"""Bytes to a multiple of which an archive is padded, and of a read of WebDataset."""

COMPRESSED = (b"\x1f\x8b", b"BZh", b"\xfd7zXZ\x00")
"""First bytes of the compressed streams that ``tarfile`` reads: gzip, bzip2 and xz."""

_HEADER_BUFFER = 2 * BLOCK  # holds the header and the byte before it, which tarfile reads
_DAMAGED = "the shard is damaged or incomplete; generate or fetch it again"


def is_header(block: bytes) -> bool:
    """Whether ``block`` is a tar header with a valid checksum."""
    try:
        tarfile.TarInfo.frombuf(block, tarfile.ENCODING, "surrogateescape")
    except (tarfile.HeaderError, ValueError):
        return False
    return True


def is_plain(path: Path) -> bool:
    """Whether a shard is an uncompressed archive.

    Raises:
        DataError: it is empty, or neither an archive nor compressed.
        OSError: it cannot be read.
    """
    with open(path, "rb", buffering=0) as file:
        block = file.read(BLOCK)
    if not block:
        raise DataError(f"{path} is empty", hint="remove the file, or choose another dataset.path")
    if is_header(block) or not block.strip(b"\0"):
        return True
    if block.startswith(COMPRESSED):
        return False
    raise DataError(
        f"{path} is not a tar archive: its first {BLOCK} bytes are no tar header",
        hint="replace the file, or correct dataset.format",
    )


@contextmanager
def tar_errors(path: Path) -> Iterator[None]:
    """Turn what ``tarfile``, decompressors and WebDataset raise for a damaged shard into one line.

    Raises:
        DataError: one line that names the file.
    """
    try:
        yield
    except DlioError:
        raise
    except OSError as error:
        raise open_error(path, error) from error
    except Exception as error:  # tarfile.TarError, zlib.error, EOFError, ValueError, ...: the damaged byte decides
        text = str(error.args[0] if error.args else type(error).__name__).partition(" @ <")[0]
        raise DataError(f"{path} cannot be read: {' '.join(text.split())}", hint=_DAMAGED) from error


class _CheckedInfo(tarfile.TarInfo):
    """Header that is an error if it is damaged; ``tarfile`` itself takes it for the end of the archive."""

    @classmethod
    def fromtarfile(cls, archive: tarfile.TarFile) -> Self:
        """Reads the next header.

        Raises:
            ReadError: it is damaged or cut, or has a size that leads back.
        """
        try:
            info = super().fromtarfile(archive)
        except (tarfile.InvalidHeaderError, tarfile.TruncatedHeaderError) as error:  # type: ignore[attr-defined]
            raise tarfile.ReadError(f"{error} in the header of the member at byte {archive.offset}") from error
        if info.size < 0:  # the next header would be an earlier one, without end
            raise tarfile.ReadError(f"negative size in the header of the member at byte {info.offset}")
        return info


def tar_members(path: Path) -> Iterator[tarfile.TarInfo]:
    """Yields the members of an uncompressed archive from their headers; the content is passed over by seeking.

    Raises:
        DataError: a header is damaged, or the archive ends within a member.
    """
    with (
        tar_errors(path),
        open(path, "rb", buffering=_HEADER_BUFFER) as file,
        tarfile.open(fileobj=file, mode="r:", tarinfo=_CheckedInfo) as archive,
    ):
        while (member := archive.next()) is not None:
            archive.members = []  # type: ignore[attr-defined]
            yield member


def streamed_members(path: Path) -> Iterator[tarfile.TarInfo]:
    """Yields the members of a compressed archive, which is unpacked as far as they are asked for.

    Raises:
        DataError: it is damaged.
    """
    with (
        tar_errors(path),
        open(path, "rb") as file,
        tarfile.open(fileobj=file, mode="r|*", tarinfo=_CheckedInfo) as archive,
    ):
        for member in archive:
            archive.members = []  # type: ignore[attr-defined]
            yield member
