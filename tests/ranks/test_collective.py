"""MPI-IO: the same batches as by POSIX calls, and what it makes of them; below a real mpiexec."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from figure_checks import check_figures
from ranks import SUPPORT, clean_environ, mpiexec, run_launcher

from dlio_torch.config.schema import DatasetConfig, FieldConfig
from dlio_torch.dist.base import SingleCommunicator
from dlio_torch.errors import ConfigError, MissingPackageError
from dlio_torch.formats.core import registry

PROGRAM = SUPPORT / "collective_program.py"
RECORD = 512
BATCH = 16
RECORDS = 256
DATA = [
    "recipe=minimal", "scale=laptop", "dist.backend=mpi", "dataset=npy", f"dataset.samples_per_file={RECORDS}",
    "dataset.num_files=1", "dataset.fields=[{name: x, dtype: uint8, shape: [512]}]", "access.order=shuffled",
    f"train.batch_size={BATCH}", "train.steps=0", "train.epochs=1", "train.warmup_steps=0", "compute.step_s=0",
    "output.progress=false",
]  # fmt: skip


@pytest.mark.needs("mpi")
@pytest.mark.ranks
def test_batches_are_those_of_posix_calls(tmp_path: Path) -> None:
    need_datatypes()
    layouts = ["npy", "binary, rows", "cdf5"]
    ended = run_launcher("mpiexec", 2, [PROGRAM, "same", tmp_path, "|".join(layouts)])
    assert ended.exit_code == 0, ended.stderr
    assert ended.stdout.splitlines() == [f"same {layout}" for layout in layouts]


@pytest.mark.needs("mpi")
@pytest.mark.ranks
def test_batches_of_parallel_hdf5_are_those_of_posix_calls(tmp_path: Path) -> None:
    import h5py

    if not h5py.get_config().mpi:
        pytest.skip("h5py was built without parallel HDF5 (dlio_torch/dist/install_parallel_h5py.sh builds one)")
    layouts = ["hdf5", "hdf5, cut", "hdf5, gzip", "hdf5, select"]
    ended = run_launcher("mpiexec", 2, [PROGRAM, "same", tmp_path, "|".join(layouts)])
    assert ended.exit_code == 0, ended.stderr
    assert ended.stdout.splitlines() == [f"same {layout}" for layout in layouts]


@pytest.mark.needs("mpi")
@pytest.mark.ranks
@pytest.mark.parametrize("io", ["collective", "independent"])
def test_scattered_records_are_read_together_or_one_by_one(tmp_path: Path, io: str) -> None:
    need_datatypes()
    ranks = 2 if io == "collective" else 1  # one process needs no launcher
    how = ["access.unit=block", "access.mpi_hints=[romio_cb_read=enable]"] if io == "collective" else []
    run = tmp_path / "run"
    options = [*DATA, f"access.io={io}", *how, "trace.posix=true", f"dataset.root={tmp_path}", f"output.dir={run}"]
    command = [*(mpiexec(ranks) if ranks > 1 else []), sys.executable, "-m", "dlio_torch", *options]
    done = subprocess.run(
        command, env=clean_environ(), cwd=tmp_path, capture_output=True, text=True, timeout=120, check=False
    )
    assert done.returncode == 0, done.stderr
    summary = json.loads((run / "summary.json").read_text())
    check_figures(summary)
    figures = summary["mpi_io"]
    steps = RECORDS // (BATCH * ranks)
    assert (figures["io"], figures["ranks"], figures["empty_calls"]) == (io, ranks, 0)
    assert figures["asked_bytes"] == RECORDS * RECORD
    posix = figures["posix"]
    tables = 2 * ranks  # the array's header: by each rank, in one call or two
    if io == "independent":
        assert figures["calls"] == RECORDS  # a call of a rank for each record, and a small read for each call
        assert RECORDS < posix["calls"] <= RECORDS + tables
        assert posix["per_asked"] < 1.2
    else:
        assert figures["hints"]["romio_cb_read"] == "enable"
        assert figures["calls"] == steps * ranks
        # In each step one rank reads the whole extent in which the records of all lie, and passes them on.
        assert steps < posix["calls"] <= steps + tables
        assert posix["max_bytes"] > RECORDS * RECORD // 2
        aggregator, other = sorted(posix["rank_bytes"].values(), reverse=True)
        assert other <= 2 * 4096 < RECORDS * RECORD < aggregator
    spans = {"collective": "read_at_all", "independent": "read_at"}[io]
    asked = f"{io}: {ranks} rank{'s' * (ranks > 1)} requested 128 KiB in {figures['calls']} MPI-IO calls; MPI-IO read"
    assert f"MPI-IO {asked}" in " ".join(done.stdout.split())  # wherever lines are wrapped
    assert spans_named(run, spans) == figures["calls"]


def spans_named(run: Path, name: str) -> int:
    from dlio_torch.iotrace.events.event_table import read_events

    frame = read_events(run / "events").frame
    return int((frame["op"] == name).sum())


def need_datatypes() -> None:
    """Skip where this MPI cannot read scattered pieces, which a run refuses."""
    from dlio_torch.data.engines.mpiio.reading_ranks import check_datatypes

    try:
        check_datatypes("collective")
    except MissingPackageError as error:
        pytest.skip(str(error))


@pytest.mark.needs("mpi")
def test_ranks_that_do_not_talk_over_mpi_are_refused() -> None:
    from dlio_torch.data.engines.mpiio.reading_ranks import Meeting

    line = r"^access\.io=collective needs ranks that communicate over MPI, but the ranks of this run use"
    with pytest.raises(ConfigError, match=line):
        Meeting.of(SingleCommunicator(), "collective", [])


def test_a_format_without_extents_is_refused() -> None:
    with pytest.raises(
        ConfigError, match=r"dataset\.format='csv', whose samples .* a format that MPI-IO can read: .*hdf5.*npy"
    ):
        registry.create(DatasetConfig(format="csv"), 1, mpi_io=True)


def test_hdf5_without_mpi_says_how_to_get_one(monkeypatch: pytest.MonkeyPatch) -> None:
    from types import SimpleNamespace

    monkeypatch.setattr("h5py.get_config", lambda: SimpleNamespace(mpi=False))
    with pytest.raises(
        MissingPackageError, match=r"built without MPI.*bash \S+install_parallel_h5py\.sh --python"
    ) as e:
        registry.create(DatasetConfig(fields=[FieldConfig()]), 1, mpi_io=True).check_shared()
    script = str(e.value).split("bash ")[1].split(" --python")[0]
    assert os.path.isfile(script)
