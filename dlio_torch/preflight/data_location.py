"""Locates the data set: files of a generated data set by their names, files of an existing data set by inspection."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from dlio_torch.config.schema import Config
from dlio_torch.data.dataset.manifest import Manifest, existing_manifest, generated_manifests
from dlio_torch.dist.base import Communicator
from dlio_torch.formats.core.format import Format


@dataclass(frozen=True)
class LocatedData:
    """The files of a data set.

    Attributes:
        manifests: the files by split, ``train`` and ``eval``; existing data have one manifest for both.
        bytes: size of existing files; 0 for generated data, whose files may not exist yet.
        details: content of the first existing file; ``None`` for generated data.
    """

    manifests: Mapping[str, Manifest]
    bytes: int = 0
    details: Mapping[str, Any] | None = None


def locate_data(config: Config, fmt: Format, comm: Communicator | None = None) -> LocatedData:
    """Locate the data set; each rank inspects its share of existing files.

    Args:
        config: the experiment.
        fmt: format of the data.
        comm: the ranks, all of which call this; ``None``: this process alone.

    Raises:
        DataError: existing data are missing or do not fit the format; rank 0 raises it.
    """
    if config.dataset.path is None:
        return LocatedData(generated_manifests(config, fmt))
    manifest, content = existing_manifest(config, fmt, comm)
    details = {"files": manifest.num_files, "samples": manifest.num_samples, **content}
    return LocatedData({"train": manifest, "eval": manifest}, manifest.bytes or 0, details)
