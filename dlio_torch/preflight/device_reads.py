"""Preflight check: machine and files permit reads to the GPU's memory (``loader.read_to=device``)."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from dlio_torch.config.schema import Config
from dlio_torch.data.dataset.manifest import Manifest
from dlio_torch.data.engines.decoupled.device_files import device_file_opener, may_pass_through_host
from dlio_torch.data.engines.decoupled.device_reading import unplain
from dlio_torch.data.engines.decoupled.group_plan import Planner
from dlio_torch.data.engines.decoupled.open_files import Files
from dlio_torch.errors import PreconditionError
from dlio_torch.formats.core.format import Format
from dlio_torch.iotrace.recorder.spans import NULL


def check_device_reads(config: Config, fmt: Format, manifests: Mapping[str, Manifest]) -> str | None:
    """Refuse reads to the GPU's memory that this machine or existing files do not permit.

    Returns:
        A remark for the user; ``None``: there is none.

    Raises:
        PreconditionError: cuFile is missing, or samples of existing files need the CPU.
        DataError: a file is damaged.
    """
    if config.loader.read_to != "device":
        return None
    device_file_opener()
    if config.dataset.path is not None:
        for manifest in manifests.values():
            check_plain_files(fmt, manifest)
    if not may_pass_through_host():
        return None
    return (
        "loader.read_to: the kernel module nvidia-fs is not loaded, so cuFile may read through the host's memory "
        "(its compatibility mode)"
    )


def check_plain_files(fmt: Format, manifest: Manifest) -> None:
    """Refuse existing files whose first sample is not stored as it is used.

    Raises:
        PreconditionError: the CPU must decode it, or take it out of its record.
        DataError: the first file is damaged.
    """
    if not manifest.num_samples:
        return
    files = Files(fmt, manifest, NULL, limit=1)
    problem = unplain(Planner(fmt.specs(), manifest, files)([np.zeros(1, np.int64)]))
    files.close()
    if problem is not None:
        raise PreconditionError(
            f"loader.read_to=device: {manifest.path(0)}: {problem}, so they cannot be read to a GPU",
            hint="set loader.read_to=host",
        )
