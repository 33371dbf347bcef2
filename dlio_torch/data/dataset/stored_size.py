"""Size of a sample in a file, known from the format or measured with a trial file in the temporary folder."""

from __future__ import annotations

import tempfile
from pathlib import Path

from dlio_torch.formats.core.format import Format
from dlio_torch.storage.local.stored_paths import system_error
from dlio_torch.syserrors import refused

OTHER_ROOT = "choose another dataset.root, or a smaller scale"


def stored_bytes(fmt: Format) -> float:
    """Bytes of a sample in a file; some formats write a temporary file to measure them.

    Raises:
        DlioError: that file cannot be written.
    """
    try:
        return fmt.stored_bytes()
    except (OSError, RuntimeError) as error:
        raise refused(
            f"dataset.format={fmt.name}: a trial file to measure the file size cannot be written to "
            f"{tempfile.gettempdir()}",
            system_error(error, Path(tempfile.gettempdir()), 1 << 20),
            elsewhere="set TMPDIR to another folder",
        ) from error
