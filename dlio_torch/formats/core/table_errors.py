"""One-line error messages for pyarrow's errors."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from dlio_torch.errors import DlioError
from dlio_torch.formats.core.file_errors import open_error


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
    except (pa.ArrowException, OSError, ValueError, LookupError, NotImplementedError) as error:
        raise open_error(path, error) from error
