"""Preflight check: the data can be copied to ``stage.dir``."""

from __future__ import annotations

from collections.abc import Mapping

from dlio_torch.config.schema import Config
from dlio_torch.data.dataset.manifest import Manifest
from dlio_torch.errors import ConfigError
from dlio_torch.formats.core.format import Format
from dlio_torch.storage.stage_folder import check_node_folder


def check_staging_folder(config: Config, fmt: Format, manifests: Mapping[str, Manifest]) -> None:
    """Refuse a ``stage.dir`` that cannot hold copies of the data; ``null`` passes.

    Raises:
        ConfigError: the data lie in no files, or see :func:`~dlio_torch.storage.stage_folder.check_node_folder`.
    """
    folder = config.stage.dir
    if folder is None:
        return
    if not fmt.needs_files:
        raise ConfigError(
            f"stage.dir={folder}: dataset.format={config.dataset.format} has no files that could be copied",
            hint="set stage.dir=null",
        )
    check_node_folder(folder, [manifest.folder for manifest in manifests.values()])
