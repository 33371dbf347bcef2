"""Preflight check: the file system of ``dataset.root`` is large enough for the data set.  Needs no torch."""

from __future__ import annotations

import os
from collections.abc import Iterable

from dlio_torch.config.schema import Config
from dlio_torch.data.dataset.manifest import Manifest, data_folder
from dlio_torch.data.dataset.stored_size import OTHER_ROOT, stored_bytes
from dlio_torch.environment.memory_limits import memory_in_all
from dlio_torch.errors import PreconditionError
from dlio_torch.formats.core.format import Format
from dlio_torch.units import format_size


def data_space_problem(config: Config, fmt: Format, manifests: Iterable[Manifest]) -> PreconditionError | None:
    """Returns the error if the data set would not fit even on an empty file system; ``None`` if it fits.

    The check takes constant time: it looks for no file.

    Args:
        config: the experiment.
        fmt: format of the data.
        manifests: the files of all splits.
    """
    folder = data_folder(config, fmt)
    try:
        system = os.statvfs(next(path for path in (folder, *folder.absolute().parents) if path.is_dir()))
    except (OSError, ValueError, StopIteration):  # making the folder fails later, with a better message
        return None
    files = samples = 0
    for manifest in manifests:
        files, samples = files + manifest.num_files, samples + manifest.num_samples
    if system.f_files and files > system.f_files:
        return PreconditionError(
            f"dataset.num_files={config.dataset.num_files}: {folder} would contain {files} files, but its file "
            f"system can hold only {system.f_files} files (inodes)",
            hint=OTHER_ROOT,
        )
    total = system.f_frsize * system.f_blocks
    if total and samples * fmt.sample_bytes() > total:  # stored_bytes may write a trial file, so tensors come first
        if fmt.sample_bytes() > memory_in_all():
            return PreconditionError(
                f"dataset.format={fmt.name}: a sample has {format_size(fmt.sample_bytes())}, more than the "
                f"memory of this machine ({format_size(memory_in_all())})",
                hint="lower the sizes of a sample (shapes and lengths in the options of the format)",
            )
        if (size := samples * stored_bytes(fmt)) > total:
            return PreconditionError(
                f"dataset.num_files={config.dataset.num_files} with "
                f"dataset.samples_per_file={config.dataset.samples_per_file}: {folder} would need about "
                f"{format_size(size)}, but the capacity of its file system is only {format_size(total)}",
                hint=OTHER_ROOT,
            )
    return None
