"""Unpacks a tar archive of logs into a temporary folder."""

from __future__ import annotations

import contextlib
import shutil
import tarfile
import zlib
from collections.abc import Iterator
from pathlib import Path, PurePosixPath

from dlio_torch.errors import DataError, DlioError
from dlio_torch.files.locked_folder import temporary_folder

_UNPACKED_BYTES = 64 << 30  # a larger archive is no archive of logs, or a decompression bomb
_MEMBERS = 1_000_000


@contextlib.contextmanager
def unpacked(path: Path) -> Iterator[Path]:
    """A folder with the regular files of an archive; its only subfolder, if it contains nothing else.

    Names in the archive cannot lead out of the temporary folder.  Errors that the body raises name the archive.

    Raises:
        DataError: the archive is damaged, or too large.
    """
    with temporary_folder() as parent:
        folder = parent / path.name
        folder.mkdir()
        try:
            _unpack(path, folder)
        except (tarfile.TarError, EOFError, zlib.error) as error:
            raise DataError(f"{path} is a damaged archive: {error}", hint="copy the archive again") from error
        entries = [entry for entry in folder.iterdir() if not entry.name.startswith(".")]
        try:
            yield entries[0] if len(entries) == 1 and entries[0].is_dir() else folder
        except DlioError as error:
            raise type(error)(error.message.replace(str(folder), str(path)), hint=error.hint) from error


def _unpack(path: Path, folder: Path) -> None:
    room = min(_UNPACKED_BYTES, shutil.disk_usage(folder).free // 2)
    with tarfile.open(path) as archive:
        for number, member in enumerate(archive):
            room -= max(0, member.size) if member.isreg() else 0
            if room < 0 or number >= _MEMBERS:
                raise DataError(
                    f"{path} is too large to unpack: it contains more than {_UNPACKED_BYTES >> 30} GiB, {_MEMBERS} "
                    f"files, or half of the free space in {folder.parent}",
                    hint="unpack the archive and give the path of its content",
                )
            parts = [part for part in PurePosixPath(member.name).parts if part not in ("/", "..", ".")]
            source = archive.extractfile(member) if member.isreg() and parts else None
            if source is None:
                continue
            target = folder.joinpath(*parts)
            target.parent.mkdir(parents=True, exist_ok=True)
            with source, open(target, "wb") as out:
                shutil.copyfileobj(source, out)
