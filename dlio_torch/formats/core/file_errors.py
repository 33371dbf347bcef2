"""One-line error messages for files that cannot be opened or read."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from dlio_torch.errors import DataError
from dlio_torch.syserrors import is_damage, unreadable

_TRIED = 1 << 20  # bytes


@contextmanager
def os_errors(path: Path) -> Iterator[None]:
    """Turn an OSError into the one-line error that names the file.

    Raises:
        DataError: one line that names the file.
    """
    try:
        yield
    except OSError as error:
        raise open_error(path, error) from error


def open_error(path: Path, error: Exception) -> DataError:
    """Returns the one-line error for a file that a library could not open or read."""
    if isinstance(error, FileNotFoundError):
        return DataError(f"{path} does not exist", hint="generate the data, or correct dataset.path")
    if isinstance(error, PermissionError):
        return DataError(
            f"{path} cannot be opened: permission denied", hint="make the file readable for this user (chmod)"
        )
    if isinstance(error, IsADirectoryError):
        return DataError(f"{path} is a folder, not a file", hint="correct dataset.path")
    if not is_damage(error):
        return unreadable(path, error)
    if (refusal := _refusal(path)) is not None:  # which some libraries keep to themselves
        return unreadable(path, refusal)
    return DataError(
        f"{path} cannot be read: {str(error) or type(error).__name__}",
        hint="the file is damaged, incomplete or of another format; replace it or correct dataset.format",
    )


def check_rows(path: Path, array: str, rows: int, first: int, count: int) -> None:
    """Raise unless the array of a file has rows ``first`` to ``first + count - 1``.

    Raises:
        DataError: it has fewer rows.
    """
    if first < 0 or count < 0 or first + count > rows:
        raise DataError(
            f"{path}: {array} has {rows} rows, but rows {first} to {first + count - 1} were requested",
            hint="the file contradicts its own index; generate or fetch the file again",
        )


def _refusal(path: Path) -> OSError | None:
    """The system's error when it reads the file; ``None`` if the file is readable."""
    if not path.is_file():
        return None
    try:
        with path.open("rb", buffering=0) as file:
            file.read(_TRIED)
    except OSError as error:
        return error
    return None
