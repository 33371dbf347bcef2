"""One-line error messages for a missing pyarrow and for its errors."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from dlio_torch.errors import DlioError
from dlio_torch.formats.core.file_errors import open_error
from dlio_torch.formats.core.libraries import import_library


def need_pyarrow(format_name: str, module: str = "pyarrow") -> None:
    """Raise if pyarrow, or a module of it, is not installed.

    Args:
        format_name: format that needs it; an extra of this name installs it.
        module: of pyarrow.

    Raises:
        MissingPackageError: names the extra.
    """
    import_library(module, f"dataset.format={format_name} needs pyarrow", format_name)


@contextmanager
def table_errors(path: Path) -> Iterator[None]:
    """Turn errors of pyarrow into one-line errors that name the file.

    Raises:
        DataError: the file cannot be opened or read.
    """
    import pyarrow as pa

    try:
        yield
    except DlioError:
        raise
    except (pa.ArrowException, OSError, ValueError, LookupError, NotImplementedError, SystemError) as error:
        raise open_error(path, error) from error
