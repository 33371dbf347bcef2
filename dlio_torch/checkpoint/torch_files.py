"""Files of ``torch.save``: read with one-line errors."""

from __future__ import annotations

import errno
from pathlib import Path
from typing import Any

import torch

from dlio_torch.errors import DataError

NOT_RESTORED = "start without train.resume and checkpoint.restore"
"""Way out when a checkpoint cannot be read."""


def load_torch_file(path: Path) -> Any:
    """Read a file with ``torch.load``.

    Raises:
        DataError: the file is damaged.
        OSError: the system cannot read it.
    """
    try:
        return torch.load(path, weights_only=True)
    except MemoryError:
        raise
    except Exception as error:  # the unpickler raises all kinds, the reader of archives also EINVAL for a wrong offset
        if isinstance(error, OSError) and error.errno != errno.EINVAL:
            raise
        text = (str(error).strip() or type(error).__name__).splitlines()[0]
        raise DataError(f"checkpoint file {path} is damaged: {text}", hint=NOT_RESTORED) from error
