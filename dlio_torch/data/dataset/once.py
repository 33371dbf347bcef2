"""Additional files that each rank opens before its first batch: ``dataset.once``.

Applications read statistics for the normalisation there, and open a file of samples to learn the shapes of its arrays.
They do so in the rank's own process, one file after another, and often open the same file several times.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from dlio_torch.config.schema import Config, DatasetConfig, OnceConfig
from dlio_torch.data.dataset.manifest import Manifest, data_folder
from dlio_torch.errors import ConfigError, PreconditionError
from dlio_torch.formats.core import registry
from dlio_torch.formats.core.format import Format
from dlio_torch.storage.registry import open_storage
from dlio_torch.syserrors import refused

_FIRST_ROW = 1 << 41  # behind the samples of all splits: content of its own


@dataclass(frozen=True)
class OnceFile:
    """File with its own arrays, which is read once.

    Attributes:
        path: of the file.
        format: writes and reads it.
        option: what it was made of.
    """

    path: Path
    format: Format
    option: OnceConfig


class OnceFiles:
    """Files that each rank opens once.

    Args:
        config: the experiment.
        fmt: the format of the samples.

    Raises:
        ConfigError: the format cannot read single columns, or makes no such arrays.
    """

    def __init__(self, config: Config, fmt: Format) -> None:
        self._format = fmt
        self._options = config.dataset.once
        path = config.dataset.path
        self._folder = data_folder(config, fmt) if path is None else _folder(Path(path))
        self._files: dict[str, OnceFile] = {}
        for number, option in enumerate(self._options):
            if option.name and option.name not in self._files:
                self._files[option.name] = self._file(config, number, option)

    def _file(self, config: Config, number: int, option: OnceConfig) -> OnceFile:
        # Contiguous, and read by POSIX calls, whatever the samples are.
        options = DatasetConfig(format=config.dataset.format, fields=option.fields, samples_per_file=option.rows)
        fmt = registry.create(options, config.seed)
        if option.columns and not fmt.reads_columns:
            raise ConfigError(
                f"dataset.once.{number}.columns={option.columns} cannot be used with format {fmt.name}, which reads "
                "whole arrays",
                hint=f"remove dataset.once.{number}.columns",
            )
        return OnceFile(self._folder / option.name, fmt, option)

    @property
    def paths(self) -> list[Path]:
        """Paths of the files with their own arrays."""
        return [file.path for file in self._files.values()]

    def missing(self) -> Iterator[OnceFile]:
        """The files that do not exist."""
        return (file for file in self._files.values() if not file.format.is_there(file.path))

    def check_present(self) -> None:
        """Raise unless all files exist.

        Raises:
            PreconditionError: names the first that is missing.
        """
        for file in self.missing():
            raise PreconditionError(
                f"dataset.once: {file.path} does not exist",
                hint="write the file with the verb generate or run, or remove its entry from dataset.once",
            )

    def write(self, *, overwrite: bool, fsync: bool) -> int:
        """Write the missing files, or all files; returns the bytes written.

        Raises:
            PreconditionError: one could not be written.
        """
        size = 0
        for file in list(self._files.values() if overwrite else self.missing()):
            part = file.path.with_name(f".{file.path.name}.part")
            try:
                with ThreadPoolExecutor(1) as pool:
                    file.format.write(part, _FIRST_ROW, file.option.rows, pool)
                size += part.stat().st_size
                open_storage(self._folder).put_file(file.option.name, part, durable=fsync)
            except (OSError, RuntimeError) as error:  # h5py raises the latter where closing fails
                part.unlink(missing_ok=True)
                why = error if isinstance(error, OSError) else OSError(str(error))
                raise refused(
                    f"{file.path} could not be written", why, elsewhere="choose another dataset.root"
                ) from error
        return size

    def read(self, manifests: Mapping[str, Manifest]) -> None:
        """Open and read all files in order, as one rank does before training.

        Args:
            manifests: the samples, by split.

        Raises:
            DataError: a file is missing or damaged.
        """
        for option in self._options:
            if option.name:
                file = self._files[option.name]
                file.format.read_once(file.path, option.columns)
            elif option.split in manifests:
                self._format.look_at_shapes(manifests[option.split].path(0))


def _folder(path: Path) -> Path:
    return path if path.is_dir() else path.parent
