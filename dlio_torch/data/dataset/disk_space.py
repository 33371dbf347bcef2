"""Whether a file system has room for the data at all: asked before anything is written, without torch."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterable
from pathlib import Path

from dlio_torch.config.schema import Config
from dlio_torch.data.dataset import manifest as layout
from dlio_torch.data.dataset.manifest import Manifest
from dlio_torch.environment.memory import memory_in_all
from dlio_torch.errors import PreconditionError
from dlio_torch.formats.core.format import Format
from dlio_torch.storage.local.stored_paths import true_error
from dlio_torch.syserrors import refused
from dlio_torch.units import format_size

OTHER_ROOT = "choose another dataset.root, or a smaller scale"


def no_room(config: Config, fmt: Format, manifests: Iterable[Manifest]) -> PreconditionError | None:
    """What a file system lacks on which the data could not lie even if it were empty; ``None``: nothing.

    No file is looked for, so that the answer takes no longer for data of more files than there are on earth.
    """
    folder = layout.data_folder(config, fmt)
    try:
        system = os.statvfs(next(path for path in (folder, *folder.absolute().parents) if path.is_dir()))
    except (OSError, ValueError, StopIteration):  # whoever makes the folder says what is wrong with it
        return None
    files = samples = 0
    for manifest in manifests:
        files, samples = files + manifest.num_files, samples + manifest.num_samples
    if system.f_files and files > system.f_files:
        return PreconditionError(
            f"dataset.num_files={config.dataset.num_files}: {folder} would hold {files} files, and its file system has "
            f"room for {system.f_files} in all",
            hint=OTHER_ROOT,
        )
    total = system.f_frsize * system.f_blocks
    if total and samples * fmt.sample_bytes() > total:  # as tensors; only then a trial tells what a file takes
        if fmt.sample_bytes() > memory_in_all():
            return PreconditionError(
                f"dataset.format={fmt.name}: a sample has {format_size(fmt.sample_bytes())}, more than this machine's "
                f"memory, {format_size(memory_in_all())}",
                hint="take smaller samples: lower the shapes and lengths of the format's options",
            )
        if (size := samples * stored_bytes(fmt)) > total:
            return PreconditionError(
                f"dataset.num_files={config.dataset.num_files} with dataset.samples_per_file="
                f"{config.dataset.samples_per_file}: {folder} would take about {format_size(size)}, and its file "
                f"system has {format_size(total)} in all",
                hint=OTHER_ROOT,
            )
    return None


def stored_bytes(fmt: Format) -> float:
    """Bytes of a sample in a file, which some formats try out in the folder of temporary files.

    Raises:
        DlioError: there it cannot be tried out.
    """
    try:
        return fmt.stored_bytes()
    except (OSError, RuntimeError) as error:
        raise refused(
            f"dataset.format={fmt.name}: the size of a file cannot be tried out in {tempfile.gettempdir()}",
            true_error(error, Path(tempfile.gettempdir()), 1 << 20),
            elsewhere="set TMPDIR to another folder",
        ) from error
