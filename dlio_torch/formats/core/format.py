"""Contract of file formats: base class ``Format``.

A format is a folder with a :class:`Format`, a :class:`Reader` and, in ``facts.py``, a
:class:`~dlio_torch.formats.core.facts.FormatFacts`, which ``registry.py`` or an entry point of group
``dlio_torch.formats`` names.  Subclass ``testing.contract.FormatContract`` in a test to check it.

The map-style Dataset and the DataPipe over every format are in ``data/dataset/map_dataset.py`` and
``data/pipeline/sample_pipes.py``: a format knows files and samples, and nothing of ranks, order or workers.
"""

from __future__ import annotations

import os
import stat
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import Executor
from contextlib import closing
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Literal

from dlio_torch.config.schema import DatasetConfig
from dlio_torch.errors import ConfigError
from dlio_torch.formats.core.batch import ArraySpec, BatchBuffer, Sample, samples_of
from dlio_torch.formats.core.device_decoder import DeviceDecoder
from dlio_torch.formats.core.difference import Difference, first_difference
from dlio_torch.formats.core.layout import FileLayout
from dlio_torch.formats.core.mpi_file import Ranks, SharedFile
from dlio_torch.formats.core.reader import Reader
from dlio_torch.iotrace.recorder.spans import NULL, Recorder
from dlio_torch.ownership.names import literal

if TYPE_CHECKING:
    import torch

MpiIo = Literal["no", "extents", "library"]
"""Ways of MPI-IO support in a format: none, as byte extents, or by the format's own library."""


@dataclass(frozen=True)
class FileInfo:
    """Facts about an existing file.

    Attributes:
        num_samples: samples in the file.
        details: figures of the layout, for the report (name -> text or number).
    """

    num_samples: int
    details: dict[str, Any]


class Format(ABC):
    """One file format: how its files are written, checked and read.

    Attributes:
        name: the name in ``dataset.format``.
        suffix: of generated files, with the dot.
        members: what ``write`` leaves in the folder that it makes, for a format whose file is a folder; entries of
            :mod:`dlio_torch.ownership.names`.
        needs_files: ``False`` for a format that keeps nothing on disk.
        layout_version: raised when the same options give other bytes than before, so that nothing stale is read.
        reads_direct: whether ``dataset.direct_io`` is honoured.
        writes_at_once: whether threads may be in :meth:`write` at the same time.
        has_layout: whether :meth:`layout` gives the extents of samples (``loader.engine=decoupled``).
        in_folders: whether its library writes a folder where others write a file.
        may_crash: whether its library may end the process over a damaged file, so that a first look is taken apart.
        shared_by_threads: whether all threads of a process read through one open file.  Its reader is then used by
            several threads at a time, and closes itself when nobody refers to it.
        depends_on_epoch: whether a sample is another one in each epoch, such as a crop at a random place; the format
            then has :meth:`of_epoch`, and its readers :meth:`Reader.begin_epoch`.
        reads_columns: whether :meth:`read_once` can read single columns.
        mpi_io: how ``access.io=independent`` and ``collective`` read: ``extents``, where :meth:`layout` can be
            extents of bytes, or ``library``, through :meth:`open_shared`.
    """

    name: ClassVar[str]
    suffix: ClassVar[str]
    members: ClassVar[tuple[str, ...]] = ()
    needs_files: ClassVar[bool] = True
    layout_version: ClassVar[int] = 1
    reads_direct: ClassVar[bool] = False
    writes_at_once: ClassVar[bool] = False
    has_layout: ClassVar[bool] = False
    in_folders: ClassVar[bool] = False
    may_crash: ClassVar[bool] = False
    shared_by_threads: ClassVar[bool] = False
    depends_on_epoch: ClassVar[bool] = False
    reads_columns: ClassVar[bool] = False
    mpi_io: ClassVar[MpiIo] = "no"

    def __init__(self, config: DatasetConfig, seed: int) -> None:
        self.config = config
        self.seed = seed

    # --- what a sample is ---

    @abstractmethod
    def specs(self) -> list[ArraySpec]:
        """Arrays of a sample, in the order of reading."""

    @abstractmethod
    def expected(self, sample: int) -> Sample:
        """Content of the generated sample number ``sample``, which depends only on the seed and this number."""

    def parameters(self) -> dict[str, float]:
        """Parameters of the content that were computed when the files were written; the manifest stores them."""
        return {}

    def use_parameters(self, parameters: Mapping[str, float]) -> None:  # noqa: B027 - most formats have none
        """Use the parameters of an existing data set, so that ``expected`` returns its content.

        Raises:
            ValueError: they are others than :meth:`parameters` has; the manifest is damaged.
        """

    @abstractmethod
    def sample_bytes(self) -> float:
        """Mean bytes of a sample in the trainer's memory."""

    @abstractmethod
    def stored_bytes(self) -> float:
        """Mean bytes of a sample in a file, for ``--dry-run``; an estimate when compressed."""

    def sharing(self) -> float:
        """Mean number of samples that a stored byte belongs to; above 1 where samples overlap."""
        return 1.0

    # --- writing ---

    def layout_options(self) -> dict[str, Any]:
        """Options that the bytes of a file depend on; the name of the data set on disk is derived from them."""
        config = asdict(self.config)
        return {"format": self.name, "fields": config["fields"], **config.get(self.name, {})}

    def files_per_sample(self) -> int:
        """Number of files that must be open to read one sample."""
        return 1

    def companions(self) -> tuple[str, ...]:
        """Suffixes of the companion files that ``write`` creates; each is appended to the name of the file."""
        return ()

    def companion_files(self, path: str) -> Sequence[str]:
        """Paths of the companion files that the samples of ``path`` need; they need not exist."""
        return [path + suffix for suffix in self.companions()]

    def listed(self, name: str) -> list[str]:
        """Entries (see :mod:`dlio_torch.ownership.names`) that cover every file which ``write`` creates for ``name``.

        Args:
            name: an entry, without the suffix.
        """
        if self.members:
            return [f"{name}{literal(self.suffix)}/{member}" for member in self.members]
        stem = "stem"
        written = self.files(Path(f"{stem}{self.suffix}"))
        return [f"{name}{literal(path.name.removeprefix(stem))}" for path in written]

    def files(self, path: Path) -> list[Path]:
        """Paths of ``path`` and its companion files, all of which are read for its samples; they need not exist."""
        return [path, *map(Path, self.companion_files(os.fspath(path)))]

    def counted_by_name(self) -> bool:
        """Whether each existing file holds one sample, so that :meth:`inspect` checks only some of many files."""
        return False

    def leaves_out_damaged(self) -> bool:
        """Whether existing files in which :meth:`inspect` counts no samples are left out."""
        return False

    def is_there(self, path: Path) -> bool:
        """Whether the file exists; for some libraries a "file" is a folder."""
        return path.is_file()

    def select(self, folder: Path, names: Sequence[str]) -> Sequence[str]:
        """The files with samples among the files of this format below a folder of existing data, in reading order.

        Args:
            folder: the data set.
            names: paths of all files with a suffix of this format, relative to the folder, sorted.

        Raises:
            DataError: the folder holds several data sets, a file of it is missing, or it is arranged in another way
                than the options say.
        """
        return names

    def stored_size(self, path: str) -> int | None:
        """Bytes of the file ``path`` and its companion files, from one ``stat`` call per file.

        Returns:
            ``None`` unless all of them are regular files and ``path`` is not empty.  A crash may leave an empty file
            whose content never reached the device.
        """
        size = _size_of_file(path)
        if not size:
            return None
        for companion in self.companion_files(path):
            more = _size_of_file(companion)
            if more is None:
                return None
            size += more
        return size

    @abstractmethod
    def write(self, path: Path, first_sample: int, num_samples: int, pool: Executor) -> None:
        """Write the whole file ``path``.

        Args:
            path: a temporary name; the caller renames it when this method has returned.
            first_sample: index in the data set of the file's first sample.
            num_samples: samples of the file.
            pool: threads for payloads and compression.  The bytes must not depend on their number.
        """

    def index_folder(self, folder: Path, names: Sequence[str]) -> None:  # noqa: B027 - most formats have no index
        """Write the index of a folder of files, if the format's library needs one; called on one rank.

        Args:
            folder: of a split, where all files are complete.
            names: of its files, in the order of their samples.
        """

    # --- reading ---

    @abstractmethod
    def inspect(self, path: Path) -> FileInfo:
        """Check that ``path`` is a file of this format and count its samples.

        A format that is told to leave damaged files out counts none in them.

        Raises:
            DataError: missing, damaged, or of another layout; the message names what does not fit.
        """

    @abstractmethod
    def open(self, path: Path, recorder: Recorder = NULL) -> Reader:
        """Open ``path`` for reading, as the application does.

        Raises:
            DataError: the file cannot be opened.
        """

    def device_decoder(self, device: torch.device) -> DeviceDecoder | None:
        """The decoder of batches on the GPU ``device``; ``None``: samples are used as the loader delivers them.

        Raises:
            PreconditionError: the library that decodes there is missing, or cannot use this GPU.
        """
        return None

    def look_at_shapes(self, path: Path) -> None:
        """Open ``path``, query the shapes of its arrays and close it, as an application does to size its network.

        Raises:
            DataError: the file cannot be opened, or has another layout.
        """
        self.open(path).close()

    def read_once(self, path: Path, columns: Sequence[int] = ()) -> None:
        """Open ``path``, read its arrays one after another, and close it.

        Args:
            path: a file with ``config.samples_per_file`` samples.
            columns: indices along the second axis of each array, each read by a call of its own; empty: all at once.

        Raises:
            DataError: the file cannot be read.
        """
        count = self.config.samples_per_file
        with closing(self.open(path)) as reader:
            reader.read(0, count, BatchBuffer(self.specs(), range(count)), 0)

    def layout(self, path: Path) -> FileLayout:
        """The layout of ``path``, for engines that read samples without this format's library.

        Raises:
            ConfigError: this format cannot tell.
            DataError: the file is missing or damaged, or is stored in a way that only its library reads.
        """
        raise ConfigError(
            f"dataset.format={self.name} provides no extents (offset, length) of its samples",
            hint="set loader.engine=dataloader",
        )

    def check_shared(self) -> None:  # noqa: B027 - most formats have no library for that
        """Check that :meth:`open_shared` is usable in this installation.

        Raises:
            MissingPackageError: the library was built without MPI.
        """

    def open_shared(self, path: Path, ranks: Ranks) -> SharedFile:
        """Open ``path`` collectively on several ranks, if the format's own library reads by MPI-IO.

        Raises:
            DataError: the file cannot be opened, or has another layout.
        """
        raise NotImplementedError(f"format {self.name} has no library that reads by MPI-IO")

    def stream(self, reader: Reader) -> Iterator[Sample]:
        """Yields the samples of an open file in order, read as a pipeline reads a file from start to end.

        A format whose application reads whole transfer buffers overrides this; here it is one read a sample.
        """
        if reader.num_samples is None:
            raise TypeError(
                f"format {self.name}: files do not store a sample count, so the format class must override stream()"
            )
        specs = self.specs()
        for row in range(reader.num_samples):
            buffer = BatchBuffer(specs, [row])
            reader.read(row, 1, buffer, 0)
            yield from (sample for _, sample in samples_of(buffer.finish(), specs))

    def stored(self, reader: Reader) -> Iterator[Any]:
        """Same as :meth:`stream`, but what a shuffle pool holds: not decoded, if the application decodes behind it."""
        return self.stream(reader)

    def decoded(self, stored: Any) -> Sample:
        """The sample of what :meth:`stored` yields."""
        sample: Sample = stored
        return sample

    def of_epoch(self, epoch: int) -> Format:
        """The format whose :meth:`expected` gives the content of samples in ``epoch`` (from 0).

        Itself, unless :attr:`depends_on_epoch`; then :meth:`Reader.begin_epoch` chooses the epoch of reads.
        """
        return self

    def difference(self, sample: int, got: Sample) -> Difference | None:
        """The first difference between a sample that was read and its generated content; ``None`` if they are equal."""
        return first_difference(self.expected(sample), got)

    def differences(self, sample: int, got: Sample) -> str | None:
        """Same as :meth:`difference`, as text."""
        difference = self.difference(sample, got)
        return None if difference is None else f"{difference.array}: {difference.text}"


def _size_of_file(path: str) -> int | None:
    """Bytes of a regular file; ``None`` where there is none."""
    try:
        status = os.stat(path)
    except OSError:
        return None
    return status.st_size if stat.S_ISREG(status.st_mode) else None
