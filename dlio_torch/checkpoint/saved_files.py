"""Files of the checkpoints in a folder, for the preparation of the page cache."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

from dlio_torch.ownership.names import MARKER
from dlio_torch.run_directory.checkpoint_folder import RUN_LINK
from dlio_torch.storage.cache_state import thinned


class SavedFiles:
    """Files below a folder of checkpoints, as they are now.

    Args:
        folder: of the checkpoints of all ranks.

    Attributes:
        bytes: of all files.
    """

    def __init__(self, folder: Path) -> None:
        paths = (Path(parent, name) for parent, _, names in os.walk(folder) for name in names)
        self._files = sorted(path for path in paths if path.parent != folder or path.name not in (MARKER, RUN_LINK))
        self.bytes = sum(path.stat().st_size for path in self._files)

    def __len__(self) -> int:
        return len(self._files)

    def share(self, first: int, step: int, most: int | None = None) -> Iterator[str]:
        """Paths of every ``step``-th file from ``first`` on, at most about ``most``."""
        yield from (str(self._files[number]) for number in thinned(range(first, len(self), step), most))
