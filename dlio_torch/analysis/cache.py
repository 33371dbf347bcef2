"""What of the data was in the page cache before a run, and whether reads from the device can be told."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from dlio_torch.data.layout import Manifest
from dlio_torch.environment import cached_share

_PROBED_FILES = 16
# File systems whose device is no block device by its name, and whose reads the kernel counts all the same.
_COUNTED = ("overlay", "btrfs", "zfs")


def cached_before(manifest: Manifest) -> float | None:
    """Share (0 to 1) of the data in the page cache, from some 16 of the files; ``None`` where it cannot be told."""
    step = max(1, manifest.num_files // _PROBED_FILES)
    shares = [cached_share(manifest.path(file)) for file in range(0, manifest.num_files, step)]
    known = [share for share in shares if share is not None]
    return float(np.mean(known)) if known else None


def counts_device(mount: Mapping[str, Any]) -> bool:
    """Whether the kernel counts what the device below this mount delivers; network file systems show zeros.

    Args:
        mount: an entry of ``mounts`` in ``environment.json``.
    """
    device, kind = mount["device"], mount["file_system"]
    return kind in _COUNTED or (device is not None and device.startswith("/dev/"))
