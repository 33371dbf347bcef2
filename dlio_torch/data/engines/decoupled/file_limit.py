"""Error of the decoupled engine for a limit of open files that the files of a batch exceed."""

from __future__ import annotations

import errno
import os
import resource
from collections.abc import Iterator
from contextlib import contextmanager

from dlio_torch.data.workers.descriptor_limits import is_too_many
from dlio_torch.errors import DataError
from dlio_torch.syserrors import way_out


@contextmanager
def opening_for_batch(kept: int) -> Iterator[None]:
    """Name the options that help where no further file can be opened: all files of a batch are open at once.

    Args:
        kept: files that stay open between batches, at most; fewer help only where they are a large part of the limit.

    Raises:
        DataError: that of the body.
    """
    try:
        yield
    except DataError as error:
        if not is_too_many(error):
            raise
        few = kept < resource.getrlimit(resource.RLIMIT_NOFILE)[0] // 2
        lower = "lower train.batch_size" if few else "lower loader.max_open_files or train.batch_size"
        refusal = OSError(errno.EMFILE, os.strerror(errno.EMFILE))
        raise DataError(error.message, hint=way_out(refusal, lower)) from error
