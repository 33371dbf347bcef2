"""A run from top to bottom: every rank prepares, plans, writes, trains and reports.

A phase takes the run's context and the result of the phase before::

    prepare   locate the data set                                     PreparedRun
    plan      order of samples, preflight checks; nothing is written  PlannedRun
    write     run directory and generated data                        WrittenRun
    train     staging, page cache, training: what is measured         TrainedRun
    report    summary of all ranks, on rank 0                         ThresholdMissed or None

Each phase imports at its top what no phase before it needs: a run that only generates data does without torch.
"""

from __future__ import annotations

import os
import socket
import sys
from collections.abc import Sequence
from dataclasses import replace

from dlio_torch.config.compose import Composed
from dlio_torch.config.schema import Config
from dlio_torch.config.validate import check_world
from dlio_torch.dist.hvd_settings import is_elastic
from dlio_torch.dist.registry import check_horovod, connect
from dlio_torch.environment.cpu_lists import format_cpus
from dlio_torch.errors import DlioError, ThresholdMissed
from dlio_torch.execution.context import RunContext
from dlio_torch.execution.outcome import RunOutcome
from dlio_torch.execution.phase_results import PlannedRun, PreparedRun, TrainedRun, WrittenRun
from dlio_torch.execution.preparation import (
    check_generated_data,
    generate_data_set,
    locate_data_set,
    needs_generated_data,
)
from dlio_torch.iotrace.recorder.spans import NULL
from dlio_torch.preflight.crowded_cores import crowded_cores
from dlio_torch.preflight.data_space import data_space_problem
from dlio_torch.preflight.rank_agreement import check_ranks_agree
from dlio_torch.supervision.crashes import report_crashes


def run(composed: Composed, phases: Sequence[str] = ("generate", "train")) -> int:
    """Generate data, train, or both, with all ranks; returns the exit code.

    Args:
        composed: the configuration and its sources.
        phases: ``generate``, ``train`` or both.

    Raises:
        DlioError: the run failed, or missed a threshold; the exit code is the same on every rank.
    """
    config = composed.config
    if is_elastic():
        check_horovod()
        from dlio_torch.execution.elastic import run_elastically

        return run_elastically(composed, phases, run_phases)
    comm = connect(config.dist, timeline=config.trace.horovod and "train" in phases)
    outcome = RunOutcome(comm)
    with outcome.failures():
        check_ranks_agree(config, comm)
        missed = run_phases(RunContext.create(composed, comm, outcome), phases)
    exit_code = 0 if missed is None else missed.exit_code
    outcome.finish(exit_code)
    comm.close()
    if missed is not None and comm.rank == 0:
        raise missed  # its line is printed once
    return exit_code


def run_phases(context: RunContext, phases: Sequence[str]) -> ThresholdMissed | None:
    """Run the phases on this rank; returns the threshold that the run missed, the same on every rank."""
    report_crashes(context.line_prefix)
    context.announce()
    prepared = prepare(context, phases)
    if "train" not in phases:
        check_data_space(context, prepared)
        if needs_generated_data(context):
            generate_data_set(context, prepared, NULL)
        return None
    planned = plan(context, prepared)
    written = write(context, planned, phases)
    trained = train(context, written)
    return report(context, trained)


def prepare(context: RunContext, phases: Sequence[str]) -> PreparedRun:
    """Locate the data set, and check that steps and ranks fit the data set."""
    with context.watchdog("the data set to be inspected"):
        prepared = locate_data_set(context)
    if prepared.config.dataset.path is not None:
        from dlio_torch.data.order.planning import fit_to_data  # imports torch, which generating data does not need

        composed, world_size = context.composed, context.comm.world_size
        config = fit_to_data(
            prepared.config, prepared.manifests, world_size, scaled=composed.scaled, fits_batch=composed.fits_batch
        )
        prepared = replace(prepared, config=config)
    samples = prepared.manifests["train"]
    check_world(
        prepared.config, context.comm.world_size, samples.num_samples, samples.num_files, context.composed.sources
    )
    if "generate" not in phases and needs_generated_data(context):
        with context.watchdog("the data set to be inspected"):
            prepared = replace(prepared, data_bytes=check_generated_data(context, prepared))
    return prepared


def plan(context: RunContext, prepared: PreparedRun) -> PlannedRun:
    """Plan the order of samples, and run all checks that are possible before a file is written."""
    from dlio_torch.data.engines import registry as engines
    from dlio_torch.data.engines.placement_plan import LocalRank, placement_lines, plan_placement
    from dlio_torch.data.order.planning import left_over, plan_order
    from dlio_torch.execution.resume import find_resume_point, run_identity
    from dlio_torch.preflight.checkpoint_layout import check_checkpoints
    from dlio_torch.preflight.checkpoint_space import checkpoint_root_problem, checkpoint_space_problem
    from dlio_torch.preflight.device_decoders import check_device_decoder
    from dlio_torch.preflight.device_reads import check_device_reads
    from dlio_torch.preflight.feasibility import NodeRanks, check_duration, check_sample_shapes, resource_problem
    from dlio_torch.preflight.mpi_io import connect_mpi_ranks
    from dlio_torch.preflight.staging_folder import check_staging_folder
    from dlio_torch.preflight.uring_reads import uring_lines
    from dlio_torch.train.to_device import needs_gpu, pageable_copies

    config, manifests, fmt, comm = prepared.config, prepared.manifests, context.format, context.comm
    sources = context.composed.sources
    mpi_ranks = connect_mpi_ranks(config, fmt, comm)
    needs_gpu(config)
    check_device_decoder(config, fmt, comm.local_rank)
    remarks = (pageable_copies(config), check_device_reads(config, fmt, manifests), *uring_lines(config))
    for line in filter(None, remarks):
        context.note(line)
    order = plan_order(config, fmt, manifests, comm.rank, comm.world_size)
    if line := left_over(config, manifests["train"], order.train, comm.world_size):
        context.note(line)
    check_duration(config, order, sources)
    check_checkpoints(config)
    ranks = comm.broadcast_object(comm.gather_objects((socket.gethostname(), format_cpus(os.sched_getaffinity(0)))))
    assert ranks is not None  # the root has them
    local = LocalRank.of(comm.rank, comm.local_rank, ranks)
    _warn_of_crowded_cores(context, config, sum(host == ranks[0][0] for host, _ in ranks))
    on_node = tuple(rank for rank, (host, _) in enumerate(ranks) if host == ranks[comm.rank][0])
    placement = plan_placement(config, engines.facts(config.loader.engine).demand(config.loader), local)
    for line in placement_lines(config, placement):
        context.note(line)
    check_sample_shapes(fmt, order.train)
    node = NodeRanks(on_node, comm.world_size)
    refuse(resource_problem(config, fmt, order.train, sources, reduces=comm.name != "single", ranks=node))
    if context.is_rank_zero:
        refuse(checkpoint_root_problem(config, sources))
        refuse(checkpoint_space_problem(config, len(order.train), comm.world_size))
    identity = run_identity(config, fmt, comm.world_size, order.train)
    resume = find_resume_point(config, identity, comm)
    if resume is not None:
        context.note(resume.line(config))
    check_staging_folder(config, fmt, manifests)
    return PlannedRun(prepared, order, identity, resume, mpi_ranks, placement)


def write(context: RunContext, planned: PlannedRun, phases: Sequence[str]) -> WrittenRun:
    """Make the run directory, and generate the data set if the run is to do so."""
    from dlio_torch.execution.run_record import make_run_directory, open_recorder

    prepared = planned.prepared
    generates = "generate" in phases and needs_generated_data(context)
    if generates:
        check_data_space(context, prepared)
    directory, checkpoints, mount = make_run_directory(context, prepared.config)
    recorder = open_recorder(directory, prepared.config, context.comm.rank)
    generated = generate_data_set(context, prepared, recorder) if generates else None
    return WrittenRun(planned, directory, checkpoints, mount, recorder, generated)


def train(context: RunContext, written: WrittenRun) -> TrainedRun:
    """Train on this rank, and gather the results of all ranks on rank 0."""
    from dlio_torch.compute.calibrate import load_or_measure
    from dlio_torch.execution.cleanup import Cleanup
    from dlio_torch.execution.staged_data import stage_data
    from dlio_torch.execution.training import train_rank
    from dlio_torch.execution.training_data import open_training_data

    comm, calibration = context.comm, load_or_measure()
    with Cleanup() as copies:
        stager = stage_data(context, written, copies)
        with Cleanup() as cleanup:
            data = open_training_data(context, written, stager, cleanup)
            comm.start_timeline(written.directory.horovod)
            result = train_rank(context, written, data, calibration, cleanup)
            comm.stop_timeline()
        ranks = comm.gather_objects(result)  # all ranks have trained: their staged copies can go
    return TrainedRun(written, ranks, data.cache, calibration)


def report(context: RunContext, trained: TrainedRun) -> ThresholdMissed | None:
    """Write and print the summary on rank 0; returns the threshold that the run missed, the same on every rank."""
    summary = None
    if trained.ranks is not None:
        from dlio_torch.execution.summary import write_summary

        summary = write_summary(context, trained, trained.ranks)
    utilisation = context.comm.broadcast_object(summary["au"]["mean"] if summary is not None else None)
    threshold = trained.written.planned.prepared.config.train.min_au
    if threshold and utilisation is not None and utilisation < threshold:
        return ThresholdMissed(
            f"accelerator utilisation is {utilisation:.4f}, below the threshold train.min_au={threshold}",
            hint=f"see the results in {trained.written.directory.path}",
        )
    return None


def _warn_of_crowded_cores(context: RunContext, config: Config, ranks: int) -> None:
    """Warn, on rank 0, if the ranks of its node have far more workers together than the node has cores."""
    if context.is_rank_zero:
        line = crowded_cores(config, ranks, context.composed.sources)
        if line is not None:
            print(line, file=sys.stderr)


def check_data_space(context: RunContext, prepared: PreparedRun) -> None:
    """Refuse, on rank 0, to generate a data set that its file system cannot hold.

    Raises:
        PreconditionError: the file system is too small.
    """
    if context.is_rank_zero and needs_generated_data(context):
        refuse(data_space_problem(prepared.config, context.format, prepared.manifests.values()))


def refuse(problem: DlioError | None) -> None:
    """Raise the problem that a preflight check reports, if any."""
    if problem is not None:
        raise problem
