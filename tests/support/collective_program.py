"""What a rank does in the tests of MPI-IO: ``python collective_program.py <case> <folder> [argument]``."""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

from data_files import config_of, epoch_of, make
from decoupled_data import FIXED, LAYOUTS, assert_same

from dlio_torch.config.schema import AccessConfig, Config, DistConfig, LoaderConfig, TrainConfig
from dlio_torch.data.dataset.manifest import Manifest, generated_manifests
from dlio_torch.data.engines.assemble import assemble
from dlio_torch.data.engines.mpiio.reading_ranks import Meeting
from dlio_torch.data.order.planning import plan_order
from dlio_torch.dist.base import Communicator
from dlio_torch.dist.registry import connect
from dlio_torch.errors import DlioError
from dlio_torch.formats.core import registry
from dlio_torch.formats.core.batch import Batch
from dlio_torch.formats.core.format import Format
from dlio_torch.formats.netcdf.options import NetcdfConfig
from dlio_torch.iotrace.recorder.spans import NULL

CDF5: dict[str, Any] = {"format": "netcdf", "fields": FIXED, "netcdf": NetcdfConfig(variant="64bit_data")}
SAMPLES = 21
ACCESS = (
    AccessConfig(partition="batches", order="shuffled", unit="sample"),
    AccessConfig(partition="batches", order="shuffled", unit="block", tail="pad"),
    AccessConfig(partition="batches", order="shuffled", unit="sample", tail="keep"),
    AccessConfig(partition="batches", order="random_blocks", unit="block"),
    AccessConfig(partition="slices", order="shuffled", unit="block"),
    AccessConfig(partition="slices", order="sequential", unit="block", tail="keep"),
    AccessConfig(partition="slices", order="random_blocks", unit="sample"),
    AccessConfig(partition="none", order="strided", stride=3, unit="block", tail="pad"),
)


def data_of(comm: Communicator, root: Path, name: str) -> tuple[Config, Format, dict[str, Manifest]]:
    """A data set that rank 0 has made."""
    each, dataset = (7, CDF5) if name == "cdf5" else LAYOUTS[name]
    config = config_of(root / name, num_files=SAMPLES // each, samples_per_file=each, **dataset)
    if comm.rank == 0:
        make(config)
    comm.barrier()
    fmt = registry.create(config.dataset, config.seed, mpi_io=True)
    return config, fmt, generated_manifests(config, fmt)


def epochs(
    comm: Communicator, config: Config, fmt: Format, manifests: dict[str, Manifest], access: AccessConfig
) -> tuple[list[Batch], Meeting | None]:
    """All batches of two epochs."""
    meeting = None if access.io == "posix" else Meeting.of(comm, access.io, access.mpi_hints)
    # Fewer open files than there are: files are closed and opened again in the midst of an epoch.
    loader = LoaderConfig(max_open_files=2)
    config = replace(config, access=access, loader=loader, train=TrainConfig(batch_size=3), verify=True)
    order = plan_order(config, fmt, manifests, comm.rank, comm.world_size)
    loaders = assemble(config, fmt, manifests, order, NULL, meeting)
    found = [batch for epoch in range(2) for batch in epoch_of(loaders.train, epoch)]
    if meeting is not None:
        meeting.close()
    loaders.close()
    return found, meeting


def same(root: str, names: str) -> None:
    """Batches are those of POSIX reads, byte by byte, whatever each rank needs; of the first one in all orders."""
    comm = connect(DistConfig(backend="mpi"))
    for number, name in enumerate(names.split("|")):
        data = data_of(comm, Path(root), name)
        for access in ACCESS if number == 0 else ACCESS[:3]:
            want, _ = epochs(comm, *data, access)
            for io in ("independent", "collective"):
                got, meeting = epochs(comm, *data, replace(access, io=io))
                assert len(want) == len(got) > 0
                for one, other in zip(want, got, strict=True):
                    assert_same(one, other)
                assert meeting is not None
                assert meeting.figures.hints is not None
                assert (meeting.figures.empty_calls == 0) or io == "collective"
                calls = comm.gather_objects(meeting.figures.calls)
                # Ranks make the collective calls together, so all have made as many.
                assert calls is None or io == "independent" or len(set(calls)) == 1
        if comm.rank == 0:
            print("same", name)
    comm.close()


if __name__ == "__main__":
    try:
        globals()[sys.argv[1]](*sys.argv[2:])
    except DlioError as error:
        print(f"error: {error}", file=sys.stderr)
        sys.exit(error.exit_code)
