"""Record of a run: its directory with configuration and environment, and the recorder of its spans."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from dlio_torch import __version__
from dlio_torch.checkpoint.registry import layout_of
from dlio_torch.config.emit import sources_to_yaml, to_yaml
from dlio_torch.config.schema import Config
from dlio_torch.environment.machine import describe
from dlio_torch.execution.cleanup import Cleanup
from dlio_torch.execution.context import RunContext
from dlio_torch.formats.core.registry import facts
from dlio_torch.iotrace.recorder.budget import make_budget
from dlio_torch.iotrace.recorder.self_recording import patterns, recording
from dlio_torch.iotrace.recorder.spans import NULL, Recorder
from dlio_torch.run_directory import run_state
from dlio_torch.run_directory.checkpoint_folder import make_checkpoint_folder
from dlio_torch.run_directory.kept_results import keep_earlier, kept_line, used_paths
from dlio_torch.run_directory.run_dir import RunDir
from dlio_torch.storage.stage_folder import node_folder


def make_run_directory(context: RunContext, config: Config) -> tuple[RunDir, Path, dict[str, Any]]:
    """Make the run directory on rank 0, and write configuration, environment and state of the run to it.

    Returns:
        The directory and the folder of the checkpoints on all ranks, and the description of the data's mount on
        rank 0; empty elsewhere.

    Raises:
        DlioError: the directory cannot be made or written.
    """
    directory, checkpoints, mount, comm = None, None, {}, context.comm
    if context.is_rank_zero:
        saved = config.checkpoint
        layout = layout_of(saved.layout)
        names = [] if layout is None else layout.file_names(config)
        if (line := keep_earlier_results(config)) is not None:
            context.note(line)
        directory = RunDir.create(config.output.root, config.recipe, config.output.dir, checkpoints=names)
        run_state.begin(directory.state, comm.world_size)  # first: another run must not take this one for finished
        root = None if layout is None else saved.root
        checkpoints = make_checkpoint_folder(directory, root, config.recipe, names)
        directory.write_text(directory.config, to_yaml(config))
        directory.write_text(directory.sources, sources_to_yaml(context.composed.sources))
        stage = config.stage.dir
        data = Path(config.dataset.path or config.dataset.root) if stage is None else node_folder(stage)
        places = {"data": data, "runs": directory.path} | ({} if root is None else {"checkpoints": checkpoints})
        environment = describe(places)
        mount = environment["mounts"]["data"]
        ranks = {"backend": comm.name, "detail": comm.detail, "world_size": comm.world_size}
        ranks |= {"settings": dict(comm.settings)}
        directory.write_json(directory.environment, {**environment, "ranks": ranks, "dlio_torch": __version__})
        context.outcome.write_to(directory.state)
    directory, checkpoints = comm.broadcast_object((directory, checkpoints))
    assert directory is not None
    assert checkpoints is not None
    if not context.is_rank_zero:
        context.outcome.write_to(directory.state)
    return directory, checkpoints, mount


def keep_earlier_results(config: Config) -> str | None:
    """Rename the folder ``output.dir`` if it holds an earlier run; returns the line that announces it.

    Raises:
        PreconditionError: the folder holds something else, or files that this run reads.
    """
    if config.output.dir is None:
        return None
    folder = Path(config.output.dir).expanduser().absolute()
    kept = keep_earlier(folder, "output.dir", used_paths(config))
    return None if kept is None else kept_line("output.dir", config.output.dir, kept)


def open_recorder(directory: RunDir, config: Config, rank: int) -> Recorder:
    """Open the recorder of this rank's spans, within the limits of ``trace``; without spans it records nothing."""
    trace = config.trace
    if trace.spans or trace.posix:
        make_budget(directory.events, rank, trace.limit_bytes, trace.limit_files)
    return Recorder(directory.events, rank) if trace.spans else NULL


def record_calls(
    context: RunContext, directory: RunDir, config: Config, places: Sequence[Path], cleanup: Cleanup
) -> None:
    """Record the I/O calls of this process and its children until the end of ``cleanup``.

    Args:
        context: the run.
        directory: the run directory.
        config: the resolved configuration.
        places: folders and files whose calls are recorded, if ``trace.posix_paths`` names none.
        cleanup: ends the recording.

    Raises:
        DlioError: the calls cannot be recorded.
    """
    trace = config.trace
    include = patterns([*trace.posix_paths] or places)
    exclude = [f"*/{name}" for name in facts(config.dataset.format).tool_files]
    rank, limit_bytes = context.comm.rank, trace.posix_limit_bytes
    cleanup.enter_context(
        recording(directory.events, rank=rank, include=include, exclude=exclude, limit_bytes=limit_bytes)
    )
