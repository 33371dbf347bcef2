"""What does not go with MPI-IO is refused, with the reason and a way out."""

from __future__ import annotations

import pytest

from dlio_torch.config.compose import compose
from dlio_torch.errors import ConfigError

BASE = ["recipe=minimal", "dataset=npy"]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["loader.num_workers=2"], r"loader\.num_workers=2 .*access\.io=collective .*set loader\.num_workers=0"),
        (["loader.read_threads=1"], r"loader\.read_threads=1 .*main thread.*set loader\.read_threads=0"),
        (["loader=decoupled"], r"loader\.engine=decoupled.*main thread.*set loader\.engine=dataloader"),
        (["loader.in_memory=true"], r"loader\.in_memory=true.*reads each batch during training"),
        (["access.partition=files"], r"each file belongs to one rank.*access\.io=independent"),
        (["dataset.direct_io=true"], r"dataset\.direct_io=true.*page cache"),
        (
            ["access.pattern=stream", "access.partition=none"],
            r"read independently of each other.*access\.pattern=samples",
        ),
        (
            ["access.mpi_hints=[cb_nodes]"],
            r"'cb_nodes', does not have the form name=value; write .* romio_cb_read=enable",
        ),
    ],
)
def test_what_does_not_go_with_collective_reads(options: list[str], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        compose([*BASE, "access.io=collective", *options])


def test_hints_without_mpi_io_are_refused() -> None:
    with pytest.raises(ConfigError, match=r"hints have an effect only on MPI-IO"):
        compose([*BASE, "access.mpi_hints=[cb_nodes=2]"])


def test_each_rank_may_have_files_of_its_own_where_it_reads_for_itself() -> None:
    options = [
        "access.io=independent",
        "access.partition=files",
        "access.mpi_hints=[cb_nodes=2, romio_ds_read=disable]",
    ]
    access = compose([*BASE, *options]).config.access
    assert access.mpi_hints == ["cb_nodes=2", "romio_ds_read=disable"]
