"""Format ``adios2``: BP4 or BP5 folders, written step by step; each step holds the arrays of several samples.

A fixed-length field ``f`` is a global array of shape (samples of the step, *shape).  A variable-length one has
shape (rows of the step, *shape), and beside it lies ``f_extents`` of shape (samples of the step, 2): first row in
the step and number of rows.  A file of this format is a folder; its data are in ``data.0``.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from concurrent.futures import Executor, ThreadPoolExecutor
from contextlib import closing
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt

from dlio_torch.config.schema import DatasetConfig
from dlio_torch.files.locked_folder import temporary_folder
from dlio_torch.formats.adios2.folder import DATA, INDEX, METADATA, make_repeatable
from dlio_torch.formats.adios2.layout import folder_layout
from dlio_torch.formats.adios2.options import Adios2Config
from dlio_torch.formats.adios2.reader import Adios2Reader, stored_type
from dlio_torch.formats.core.array_format import FieldFormat
from dlio_torch.formats.core.format import FileInfo, MpiIo
from dlio_torch.formats.core.layout import FileLayout
from dlio_torch.formats.core.libraries import import_library
from dlio_torch.formats.core.ragged import EXTENTS_SUFFIX, check_table_names, table_of
from dlio_torch.formats.core.reader import Reader
from dlio_torch.iotrace.recorder.spans import NULL, Recorder
from dlio_torch.ownership.names import numbers

_ALIGNMENT = 4096  # of a step's data in BP5


def need_adios2() -> None:
    """Check that adios2 is installed.

    Raises:
        MissingPackageError: it is not.
    """
    import_library("adios2.bindings", "dataset.format=adios2 needs adios2", "adios2")


class Adios2Format(FieldFormat):
    """Arrays of ``dataset.fields`` as variables of ADIOS2."""

    name: ClassVar[str] = "adios2"
    suffix: ClassVar[str] = ".bp"
    members: ClassVar[tuple[str, ...]] = (
        f"data.{numbers()}",
        f"md.{numbers()}",
        f"mmd.{numbers()}",
        INDEX,
        "profiling.json",
    )
    has_layout: ClassVar[bool] = True
    in_folders: ClassVar[bool] = True
    may_crash: ClassVar[bool] = True
    mpi_io: ClassVar[MpiIo] = "extents"

    def __init__(self, config: DatasetConfig, seed: int) -> None:
        self.options: Adios2Config = config.of(Adios2Config)
        super().__init__(config, seed)
        need_adios2()
        check_table_names(self._specs)

    def is_there(self, path: Path) -> bool:
        return path.is_dir() and (path / INDEX).is_file()

    def files(self, path: Path) -> list[Path]:
        try:
            with os.scandir(path) as entries:
                return sorted(Path(entry.path) for entry in entries if entry.is_file())
        except OSError:
            return [path / name for name in (DATA, METADATA, INDEX)]

    def stored_size(self, path: str) -> int | None:
        try:
            with os.scandir(path) as entries:
                sizes = {entry.name: entry.stat().st_size for entry in entries if entry.is_file()}
        except OSError:
            return None
        return sum(sizes.values()) if INDEX in sizes else None

    # --- writing ---

    def write(self, path: Path, first_sample: int, num_samples: int, pool: Executor) -> None:
        self._write(path, first_sample, num_samples, self.options.samples_per_step, pool)

    def _write(self, path: Path, first_sample: int, num_samples: int, per_step: int, pool: Executor) -> None:
        import adios2.bindings as adios

        library = adios.ADIOS()
        output = library.DeclareIO("write")
        output.SetEngine(self.options.engine)
        output.SetParameters({"Profile": "Off"})
        engine = output.Open(str(path), adios.Mode.Write)
        variables: dict[str, Any] = {}
        for low in range(0, num_samples, per_step):
            count = min(per_step, num_samples - low)
            engine.BeginStep()
            for name, content in self._step(first_sample + low, count, pool):
                shape, start = list(content.shape), [0] * content.ndim
                if name in variables:
                    variables[name].SetShape(shape)
                    variables[name].SetSelection([start, shape])
                else:
                    variables[name] = output.DefineVariable(name, content, shape, start, shape, False)
                engine.Put(variables[name], content, adios.Mode.Sync)
            engine.EndStep()
        engine.Close()
        make_repeatable(path)

    def _step(self, first: int, count: int, pool: Executor) -> Iterator[tuple[str, npt.NDArray[Any]]]:
        """Names and content of the variables that one step stores."""
        for number, spec in enumerate(self._specs):
            if spec.variable:
                yield spec.name + EXTENTS_SUFFIX, table_of(self.rows(number, first, count))
            content = np.concatenate(list(self.blocks(number, first, count, pool)))
            yield spec.name, content.view(stored_type(spec.dtype))

    def stored_bytes(self) -> float:
        """Mean bytes of a sample in a file; trial files of one and two steps give the overhead of a step."""
        options, samples = self.options, self.config.samples_per_file
        metadata_bytes = []
        with temporary_folder() as folder, ThreadPoolExecutor(1) as pool:
            for steps in (1, 2):
                path = folder / str(steps)
                self._write(path, 0, steps, 1, pool)
                metadata_bytes.append(sum(file.stat().st_size for file in path.iterdir() if file.name != DATA))
                if steps == 1:
                    groups = (path / DATA).stat().st_size - sum(data.nbytes for _, data in self._step(0, 1, pool))
        drawn = {n: self.rows(n, 0, min(samples, 4096)).mean() for n, spec in enumerate(self._specs) if spec.variable}
        sample = 16.0 * len(drawn)
        for number, field in enumerate(self.config.fields):
            sample += self.field_bytes(number) * drawn.get(number, 1) / (field.length_mean or 1)
        per_step = min(samples, options.samples_per_step)
        steps = -(-samples // per_step)
        padding = groups + (_ALIGNMENT / 2 if options.engine == "BP5" and steps > 1 else 0)
        return (
            sample
            + (metadata_bytes[0] + (steps - 1) * (metadata_bytes[1] - metadata_bytes[0]) + steps * padding) / samples
        )

    # --- reading ---

    def inspect(self, path: Path) -> FileInfo:
        with closing(Adios2Reader(path, self._specs)) as reader:
            return FileInfo(reader.num_samples, reader.describe())

    def open(self, path: Path, recorder: Recorder = NULL) -> Reader:
        return Adios2Reader(path, self._specs)

    def layout(self, path: Path) -> FileLayout:
        return folder_layout(path, self._specs)
