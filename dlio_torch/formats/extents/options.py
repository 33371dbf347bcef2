"""Options of recorded requests: ``dataset.extents``."""

from __future__ import annotations

from dataclasses import dataclass

from dlio_torch.config.opt import opt


@dataclass(frozen=True)
class ExtentsConfig:
    """Raw files that are read by recorded requests."""

    requests: str = opt(
        "",
        "file of the recorded requests (requests.npz), from which data are generated; a relative path in a recipe "
        "starts at the folder of the recipe; empty: only existing folders can be read, which hold their own",
        is_file=True,
    )
