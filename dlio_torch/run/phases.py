"""The phases of a run, as each rank goes through them: data, run directory, training, results.

What only one of them needs is imported there: a generation does without torch.
"""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from dlio_torch import __version__, runstate
from dlio_torch.config.emit import sources_to_yaml, to_yaml
from dlio_torch.config.validate import check_world
from dlio_torch.data.dataset.generation import Generated
from dlio_torch.data.dataset.manifest import Manifest
from dlio_torch.dist.registry import check_mpi4py
from dlio_torch.environment.crashing import guard_crashes
from dlio_torch.environment.machine import describe
from dlio_torch.errors import ThresholdMissed
from dlio_torch.run.data import make_samples, use_existing, where_samples_lie
from dlio_torch.run.resume import Resumed, check_same, find, identity
from dlio_torch.run.setting import Setting
from dlio_torch.rundir import RunDir
from dlio_torch.storage.stage_folder import node_folder
from dlio_torch.trace import budget
from dlio_torch.trace.spans import NULL, Recorder

if TYPE_CHECKING:
    from dlio_torch.data.engines.mpiio.reading_ranks import Meeting
    from dlio_torch.data.order.held_plan import HeldPlan
    from dlio_torch.data.order.pipe_plan import PipePlan
    from dlio_torch.data.order.sampler import BatchSampler


def do(run: Setting, phases: Sequence[str]) -> ThresholdMissed | None:
    """Generate and train; returns the threshold that the finished run missed, the same on every rank."""
    guard_crashes(run.who)
    if run.first:
        for note in run.composed.notes:
            print(f"scale: {note}", file=sys.stderr)
    with run.vigil("a look at the data"):
        manifests = where_samples_lie(run)
    samples = manifests["train"]
    if run.config.dataset.path is not None:
        from dlio_torch.data.order.planning import fit_steps

        run.config = fit_steps(run.config, manifests, run.comm.world_size, run.composed.scaled)
    meeting = _meeting(run) if "train" in phases else None
    check_world(run.config, run.comm.world_size, samples.num_samples, samples.num_files, run.composed.sources)
    if "generate" not in phases:
        with run.vigil("a look at the data"):
            use_existing(run, manifests)
    if "train" in phases:
        from dlio_torch.preflight.checkpoint_space import no_checkpoint_room
        from dlio_torch.preflight.feasibility import check_possible, check_room, check_specs
        from dlio_torch.train.to_device import needs_gpu

        needs_gpu(run.config)  # said before anything is written, as what follows
        sources = run.composed.sources
        sampler = check_possible(run.config, manifests, run.comm.rank, run.comm.world_size, sources)
        check_specs(run.format, sampler)
        check_room(run.config, run.format, sampler, sources, reduces=run.comm.name != "single")
        if run.first:
            problem = no_checkpoint_room(run.config, len(sampler), run.comm.world_size)
            if problem is not None:
                raise problem
        run.resumed = _resumed(run, sampler)
        if run.config.stage.dir is not None:
            from dlio_torch.run.stage import check_staging

            check_staging(run.config, run.format, manifests)
    if "generate" in phases and run.config.dataset.path is None and run.format.needs_files and run.first:
        from dlio_torch.data.dataset.disk_space import no_room

        if (problem := no_room(run.config, run.format, manifests.values())) is not None:
            raise problem
    directory = _run_directory(run) if "train" in phases else None
    recorder, trace = NULL, run.config.trace
    if directory is not None and (trace.spans or trace.posix):
        budget.make(directory.events, run.comm.rank, trace.limit_bytes, trace.limit_files)
    if directory is not None and trace.spans:
        recorder = Recorder(directory.events, run.comm.rank)
    made = make_samples(run, recorder) if "generate" in phases else None
    if directory is None:
        return None
    return _train(run, directory, manifests, recorder, made, meeting)


def _resumed(run: Setting, plan: BatchSampler | PipePlan | HeldPlan) -> Resumed | None:
    """Where the run goes on that ``train.resume`` names; compared with this one before anything is written."""
    resumed = find(run.config, run.comm)
    if resumed is None:
        return None
    from dlio_torch.data.order.held_plan import fetched_by

    pattern = fetched_by(plan).state_dict()["pattern"]
    check_same(resumed, identity(run.config, run.format, run.comm.world_size, pattern, len(plan)), run.config)
    if run.first:
        epoch, step = resumed.begins(run.config)
        print(
            f"resumed: {resumed.run}, after the checkpoint of its step {resumed.checkpoint}; "
            f"next is step {step + 1} of epoch {epoch}",
            file=sys.stderr,
        )
    return resumed


def _meeting(run: Setting) -> Meeting | None:
    """The ranks that read by MPI-IO, where ``access.io`` asks for that; looked at before anything is written."""
    access = run.config.access
    if access.io == "posix":
        return None
    run.format.check_shared()
    check_mpi4py(f"access.io={access.io}")
    from dlio_torch.data.engines.mpiio.reading_ranks import Meeting, check_datatypes

    if run.format.mpi_io == "places":
        check_datatypes(access.io)
    return Meeting.of(run.comm, access.io, access.mpi_hints)


def _run_directory(run: Setting) -> RunDir:
    from dlio_torch.train.checkpoint_files import file_names

    config, made = run.config, None
    if run.first:
        names = file_names(config.checkpoint)
        made = RunDir.create(config.output.root, config.recipe, config.output.dir, checkpoints=names)
        made.write_text(made.config, to_yaml(config))
        made.write_text(made.sources, sources_to_yaml(run.composed.sources))
        stage = config.stage.dir
        data = Path(config.dataset.path or config.dataset.root) if stage is None else node_folder(stage)
        environment = describe({"data": data, "runs": made.path})
        run.mount = environment["mounts"]["data"]
        comm = run.comm
        ranks = {"backend": comm.name, "detail": comm.detail, "world_size": comm.world_size}
        ranks |= {"settings": dict(comm.settings)}
        made.write_json(made.environment, {**environment, "ranks": ranks, "dlio_torch": __version__})
        runstate.begin(made.state, run.comm.world_size)
        run.ending.write_to(made.state)
    found = run.comm.broadcast_object(made)
    assert found is not None
    if made is None:
        run.ending.write_to(found.state)
    return found


def _train(
    run: Setting,
    directory: RunDir,
    manifests: dict[str, Manifest],
    recorder: Recorder,
    made: Generated | None,
    meeting: Meeting | None,
) -> ThresholdMissed | None:
    from dlio_torch.compute.calibrate import load_or_measure
    from dlio_torch.run.stage import make_stager, removed_at_end, staged_manifests
    from dlio_torch.run.training import prepare_cache, train

    calibration = load_or_measure()
    stager = make_stager(run, manifests, recorder)
    with removed_at_end(stager):
        with contextlib.ExitStack() as stack:
            if stager is not None:
                manifests = staged_manifests(stager, manifests)
            keeper = prepare_cache(run, manifests, stager, stack) if run.format.needs_files else None
            run.comm.start_timeline(directory.horovod)
            own = train(run, directory, manifests, recorder, calibration, keeper, stager, stack, meeting)
            run.comm.stop_timeline()
        everyone = run.comm.gather_objects(own)
    summary = None
    if everyone is not None:
        from dlio_torch.run.outcome import finish

        with run.vigil("the results to be written"):
            summary = finish(run, directory, everyone, made, keeper, calibration)
    au = run.comm.broadcast_object(summary["au"]["mean"] if summary is not None else None)
    least = run.config.train.min_au
    if least and au is not None and au < least:
        return ThresholdMissed(
            f"accelerator utilisation is {au:.4f}, below train.min_au={least}", hint=f"see {directory.path}"
        )
    return None
