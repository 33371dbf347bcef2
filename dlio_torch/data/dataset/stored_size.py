"""Size of a sample in a file: known from the format, or tried out in the folder of temporary files."""

from __future__ import annotations

import tempfile
from pathlib import Path

from dlio_torch.formats.core.format import Format
from dlio_torch.storage.local.stored_paths import system_error
from dlio_torch.syserrors import refused

OTHER_ROOT = "choose another dataset.root, or a smaller scale"


def stored_bytes(fmt: Format) -> float:
    """Bytes of a sample in a file; some formats write a file of temporary data to learn them.

    Raises:
        DlioError: that file cannot be written.
    """
    try:
        return fmt.stored_bytes()
    except (OSError, RuntimeError) as error:
        raise refused(
            f"dataset.format={fmt.name}: the size of a file cannot be tried out in {tempfile.gettempdir()}",
            system_error(error, Path(tempfile.gettempdir()), 1 << 20),
            elsewhere="set TMPDIR to another folder",
        ) from error
