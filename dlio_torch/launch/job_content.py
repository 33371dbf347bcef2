"""The command of a job, checked before the job is queued: arguments, ranks, cores, folders of data and results."""

from __future__ import annotations

import importlib.util
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from dlio_torch.config.arguments import split_argument
from dlio_torch.config.compose import Composed
from dlio_torch.config.schema import Config
from dlio_torch.config.validate import check_world
from dlio_torch.data.engines.registry import facts, format_of
from dlio_torch.dist.launcher import Launch, LauncherName
from dlio_torch.dist.registry import choose_backend
from dlio_torch.errors import ConfigError
from dlio_torch.launch.job_ranks import with_ranks
from dlio_torch.launch.job_request import JobRequest
from dlio_torch.run_directory.results_folder import check_results_folder, folder_name
from dlio_torch.study.checkpoint_arguments import checkpoint_plan, compose_checkpoints
from dlio_torch.study.model import Point, Study
from dlio_torch.study.resolve import Resolved, resolve, resolve_point
from dlio_torch.study.strategies.search.search_request import check_objective, parse_request
from dlio_torch.study.strategies.search.search_space import given_points
from dlio_torch.study.study_arguments import parse

_LAUNCH_NAMES: dict[str, LauncherName] = {
    "srun": "srun",
    "mpiexec": "mpirun",
    "torchrun": "torchrun",
    "horovodrun": "horovodrun",
}
_MEET = {"MASTER_ADDR": "", "MASTER_PORT": ""}  # which the script sets for mpiexec


@dataclass(frozen=True)
class JobContent:
    """The command that a job runs.

    Attributes:
        name: name of the recipe or study.
        arguments: arguments of the verb, without the folder of its results.
        ranks: most ranks on a node.
        cores: most cores that a rank keeps busy.
        parent: folder below which the results lie.
        result: folder of the results as given; None: a new one below ``parent``.
        generates: whether the data set is written first.
        notes: lines for the user.
    """

    name: str
    arguments: tuple[str, ...]
    ranks: int
    cores: int
    parent: Path
    result: Path | None = None
    generates: bool = False
    notes: tuple[str, ...] = ()


def launch_of(request: JobRequest) -> Launch:
    """The launch that rank 0 of a job will see; a study is one process."""
    world_size = request.nodes * request.ranks_per_node
    if request.is_study or (request.launcher == "srun" and world_size == 1):
        return Launch("single", 0, 1, 0)
    return Launch(_LAUNCH_NAMES[request.launcher], 0, world_size, 0)


def of_run(request: JobRequest, composed: Composed) -> JobContent:
    """The content of a job of ``run``, ``generate``, ``train`` or ``checkpoint``.

    Args:
        request: the keys of ``launch``.
        composed: configuration of the ranks.

    Raises:
        ConfigError: it does not fit the ranks or the launcher, or the data cannot be copied.
        PreconditionError: the folder of the results cannot be used.
    """
    config, launch = composed.config, launch_of(request)
    backend = choose_backend(config.dist.backend, launch, _MEET)
    if request.verb in ("run", "train") and config.dataset.path is None:
        check_world(config, launch.world_size, sources=composed.sources)
    output = config.output
    if output.dir is None:
        check_results_folder(Path(output.root), "output.root", composed.sources["output.root"], empty=False)
    else:
        check_results_folder(Path(output.dir), "output.dir", composed.sources["output.dir"])
    in_files = config.dataset.path is not None or _generates(config)
    if request.local is not None and not in_files:
        raise ConfigError(
            f"local={request.local} (command line): dataset.format={config.dataset.format} has no files",
            hint="leave local= out",
        )
    if request.local is not None and config.stage.dir is not None:
        raise ConfigError(
            f"local={request.local} (command line): stage.dir={config.stage.dir} ({composed.sources['stage.dir']}) "
            "copies the data, too",
            hint="leave one of them out",
        )
    notes = list(composed.adjusted)
    if backend == "horovod" and importlib.util.find_spec("horovod") is None:
        other = "dist.backend=torch" if request.launcher == "mpiexec" else "launcher=torchrun"
        notes.append(
            f"launcher={request.launcher} needs Horovod, which is not installed here; {other} does not need it"
        )
    return JobContent(
        name=folder_name(config.recipe),
        arguments=tuple(argument for argument in request.arguments if split_argument(argument)[0] != "output.dir"),
        ranks=request.ranks_per_node,
        cores=_cores(config, request.verb),
        parent=Path(output.root) / folder_name(config.recipe),
        result=None if output.dir is None else Path(output.dir),
        generates=request.verb in ("run", "generate") and config.dataset.path is None and in_files,
        notes=tuple(notes),
    )


def of_checkpoints(request: JobRequest) -> tuple[JobRequest, JobContent]:
    """The content of a job of ``checkpoint``, and the request with its nodes and ranks.

    Raises:
        ConfigError: anything that the verb itself would refuse, or as for :func:`of_run`.
        PreconditionError: as for :func:`of_run`.
    """
    described = compose_checkpoints(request.arguments, world_size=1)
    request = with_ranks(request, described.config)
    plan = checkpoint_plan(request.arguments, request.nodes * request.ranks_per_node)
    content = of_run(request, plan.composed)
    return request, replace(content, notes=(*content.notes, *plan.amounts()))


def of_study(request: JobRequest) -> tuple[JobContent, Composed]:
    """The content of a job of ``sweep``, ``tune`` or ``headspace``, and the configuration of its first run.

    Raises:
        ConfigError: anything that the verb itself would refuse.
    """
    asked_study, output, resolved = _study(request)
    first = resolved[0].composed
    name = asked_study.name if request.verb == "sweep" else f"{request.verb}_{asked_study.name}"
    return JobContent(
        name=name,
        arguments=tuple(item for item in request.arguments if split_argument(item)[0] != "output"),
        ranks=max(item.point.ranks for item in resolved),
        cores=max(_cores(item.composed.config, item.point.verb) for item in resolved),
        parent=Path(first.config.output.root) / "sweeps" / name,
        result=None if output is None else Path(output),
    ), first


def _study(request: JobRequest) -> tuple[Study, str | None, Sequence[Resolved]]:
    if request.verb == "tune":
        wanted = parse_request(request.arguments)
        given = given_points(wanted)
        check_objective(wanted, given.default.composed.config)
        return wanted.study, wanted.output, [given.default, *given.points]
    parsed, output = parse(request.arguments, verb=request.verb)
    if request.verb == "headspace":
        from dlio_torch.study.strategies.ladder.ladder import plan_ladder

        plan_ladder(parsed)
        return parsed, output, [resolve_point(Point(1, (), parsed.settings, parsed.ranks))]
    return parsed, output, resolve(parsed)[0]


def _generates(config: Config) -> bool:
    """Whether generated data lie in files."""
    return format_of(config).needs_files  # numpy is imported here: arguments are checked without it


def _cores(config: Config, verb: str) -> int:
    """Cores that a rank keeps busy; with fewer its loader would wait for its trainer."""
    if verb == "checkpoint":  # it has no loader
        return max(config.checkpoint.thread_count, config.checkpoint.consolidate_threads)
    trainer = config.compute.threads if config.compute.mode == "spin" else 1
    return trainer + facts(config.loader.engine).demand(config.loader).tasks
