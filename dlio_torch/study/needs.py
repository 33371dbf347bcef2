"""Needs of the points of a study: data sets, space for them, time.

A data set is named after everything that its bytes depend on (:mod:`dlio_torch.data.dataset.manifest`), so points that
differ in other options share one, and one that is there already is used as it is.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from dlio_torch.config.schema import Config
from dlio_torch.config.validate import check_world
from dlio_torch.data.dataset.manifest import Manifest, data_folder, existing_manifest, generated_manifests
from dlio_torch.data.dataset.stored_size import stored_bytes
from dlio_torch.data.order.planning import fit_to_data, train_sampler
from dlio_torch.errors import ConfigError, PreconditionError
from dlio_torch.formats.core import registry
from dlio_torch.formats.core.format import Format
from dlio_torch.preflight.checkpoint_space import peak_bytes, peak_bytes_of
from dlio_torch.study.checkpoint_arguments import checkpoint_plan
from dlio_torch.study.resolve import Resolved
from dlio_torch.study.short_runs import ShortRun, short_run
from dlio_torch.units import counted, format_size

START_S = 4.0
"""Approximate seconds that a process takes to start torch and to end, for estimates."""
WARM_S = 0.5
"""Approximate seconds that a warm start takes in addition to the training, for estimates."""


@dataclass(frozen=True)
class DataSet:
    """A generated data set.

    Attributes:
        folder: where it lies.
        bytes: of all its files, an estimate where they are compressed.
        missing_bytes: of the files that are not there yet.
        files: all files.
        missing_files: those that are not there yet.
        points: numbers of the points that read it.
        makers: numbers of the points whose data together are the whole data set.
    """

    folder: Path
    bytes: float
    missing_bytes: float
    files: int
    missing_files: int
    points: tuple[int, ...]
    makers: tuple[int, ...]

    @property
    def progress_line(self) -> str:
        """The line that announces the generation of the missing files."""
        size = format_size(self.missing_bytes)
        return f"data: writing {counted(self.missing_files, 'file')}, about {size}, to {self.folder}"


@dataclass(frozen=True)
class StudyNeeds:
    """Resources that the points of a study need.

    Attributes:
        data: the data sets that are generated, in the order of the points.
        checkpoint_bytes: most that one run keeps of checkpoints in its folder, which go when it has ended.
        compute_s: point -> emulated compute of one of its runs; none of a point that cannot be looked at.
        notes: points that will fail as the machine is, and why; one line each.
        checkpoint_roots: most that one run keeps below each ``checkpoint.root`` of the points.
        short_runs: points whose runs measure no more steps than the loader reads ahead.
    """

    data: tuple[DataSet, ...]
    checkpoint_bytes: float
    compute_s: dict[int, float]
    notes: tuple[str, ...] = ()
    checkpoint_roots: Mapping[Path, float] = field(default_factory=dict)
    short_runs: tuple[ShortRun, ...] = ()

    def at_least_s(self, repeats: int, fresh: Collection[int]) -> float:
        """Minimum seconds that all runs take: emulated compute, and starting of processes.

        Args:
            repeats: runs of each point.
            fresh: numbers of the points whose runs do not start warm.
        """
        server = START_S if self.compute_s.keys() - set(fresh) else 0.0
        starts = sum(START_S if number in fresh else WARM_S for number in self.compute_s)
        return server + repeats * (sum(self.compute_s.values()) + starts)


def needs(resolved: Sequence[Resolved], *, cwd: Path | None = None) -> StudyNeeds:
    """Determine the needs from formats, files and steps of every point.

    Args:
        resolved: the points.
        cwd: folder that relative data folders start from; None: the current one.

    Raises:
        ConfigError: what a format refuses; names the point's values.
        PreconditionError: the same for all points: a package or the data are missing.
    """
    return _Survey(cwd or Path.cwd()).of(resolved)


def require_space(required: StudyNeeds, runs: Path) -> None:
    """Raise an error unless the missing data and the checkpoints of one run fit on the file system.

    Args:
        required: what the points need.
        runs: folder of the study.

    Raises:
        PreconditionError: names the file system's place, what is needed and what is left.
    """
    wanted: dict[int, list[tuple[Path, float]]] = {}
    for folder, size in [
        *((data_set.folder, data_set.missing_bytes) for data_set in required.data),
        (runs, required.checkpoint_bytes),
        *required.checkpoint_roots.items(),
    ]:
        place = _existing(folder)
        wanted.setdefault(os.stat(place).st_dev, []).append((folder, size))
    for parts in wanted.values():
        total = sum(size for _, size in parts)
        free = shutil.disk_usage(_existing(parts[0][0])).free
        if total > free:
            largest = max(parts, key=lambda part: part[1])[0]
            raise PreconditionError(
                f"the points of the study need {format_size(total)} (most of it in {largest}) but the file "
                f"system has only {format_size(free)} left",
                hint="choose another dataset.root, fewer values of the axes that change the data, or a smaller scale",
            )


def _existing(path: Path) -> Path:
    path = path.absolute()
    while not path.exists():
        path = path.parent
    return path


@dataclass
class _Survey:
    """Inspects each data set once, even if many points read the data set."""

    cwd: Path
    sizes: dict[Path, float] = field(default_factory=dict)
    present: dict[tuple[Path, int, int], tuple[int, float, int, float]] = field(default_factory=dict)
    existing_data: dict[str, Manifest] = field(default_factory=dict)
    short_runs: list[ShortRun] = field(default_factory=list)

    def of(self, resolved: Sequence[Resolved]) -> StudyNeeds:
        compute: dict[int, float] = {}
        readers: dict[Path, dict[tuple[int, int], list[int]]] = {}
        notes: list[str] = []
        checkpoints: dict[Path | None, float] = {}
        failed: list[PreconditionError] = []
        for resolved_point in resolved:
            try:
                config, folder, seconds, kept = self.point(resolved_point)
            except ConfigError as error:
                raise ConfigError(f"point {resolved_point.point.label}: {error.message}", hint=error.hint) from None
            except PreconditionError as error:
                failed.append(error)
                notes.append(f"will fail: point {resolved_point.point.label}: {error}")
                continue
            compute[resolved_point.point.number] = seconds
            root = None if config.checkpoint.root is None else self.cwd / Path(config.checkpoint.root).expanduser()
            checkpoints[root] = max(checkpoints.get(root, 0.0), kept)
            if folder is not None:
                amount = config.dataset.num_files, config.dataset.num_files_eval
                readers.setdefault(folder, {}).setdefault(amount, []).append(resolved_point.point.number)
        if resolved and len(failed) == len(resolved):
            raise failed[0]
        data = tuple(self.data_set(folder, by_amount) for folder, by_amount in readers.items())
        roots = {root: size for root, size in checkpoints.items() if root is not None}
        return StudyNeeds(data, checkpoints.get(None, 0.0), compute, tuple(notes), roots, tuple(self.short_runs))

    def point(self, resolved: Resolved) -> tuple[Config, Path | None, float, float]:
        """Returns configuration, folder of generated data, seconds of compute and bytes of checkpoints of a point."""
        composed, ranks = resolved.composed, resolved.point.ranks
        if resolved.point.verb == "checkpoint":
            saving = checkpoint_plan(resolved.point.settings, ranks, cwd=self.cwd)
            return saving.config, None, 0.0, float(peak_bytes_of(saving.config, saving.saves, saving.world_size))
        config = composed.config
        if config.dataset.path is None:
            config = replace(config, dataset=replace(config.dataset, root=str(self.cwd / config.dataset.root)))
        fmt = registry.create(config.dataset, config.seed)
        folder = None
        if config.dataset.path is not None:
            manifests = {"train": self.existing(config, fmt)}
        else:
            manifests = generated_manifests(config, fmt)
            if fmt.needs_files:
                folder = data_folder(config, fmt)
                self.count(folder, config, fmt, manifests)
        config = fit_to_data(config, manifests, ranks, scaled=composed.scaled, fits_batch=composed.fits_batch)
        train = manifests["train"]
        check_world(config, ranks, train.num_samples, train.num_files, composed.sources)
        plan = train_sampler(config, train, 0, ranks)
        steps = len(plan)  # of an epoch
        if short := short_run(resolved.point.label, config, steps, plan.batch_size * fmt.sample_bytes()):
            self.short_runs.append(short)
        seconds = steps * config.train.epochs * config.compute.emulated_step_s
        return config, folder, seconds, float(peak_bytes(config, steps, ranks))

    def existing(self, config: Config, fmt: Format) -> Manifest:
        path = str(self.cwd / (config.dataset.path or ""))
        key = f"{path} {fmt.name} {fmt.layout_options()}"
        if key not in self.existing_data:
            self.existing_data[key] = existing_manifest(
                replace(config, dataset=replace(config.dataset, path=path)), fmt
            )[0]
        return self.existing_data[key]

    def count(self, folder: Path, config: Config, fmt: Format, manifests: dict[str, Manifest]) -> None:
        amount = folder, config.dataset.num_files, config.dataset.num_files_eval
        if amount in self.present:
            return
        if folder not in self.sizes:
            self.sizes[folder] = stored_bytes(fmt)
        each = self.sizes[folder]
        files = missing = 0
        size = missing_size = 0.0
        for manifest in manifests.values():
            absent = [n for n in range(manifest.num_files) if not fmt.is_there(manifest.path(n))]
            files, missing = files + manifest.num_files, missing + len(absent)
            size += manifest.num_samples * each
            missing_size += sum(manifest.count(n) for n in absent) * each
        self.present[amount] = files, size, missing, missing_size

    def data_set(self, folder: Path, by_amount: dict[tuple[int, int], list[int]]) -> DataSet:
        # Files of a smaller amount are the first of a larger one: the largest is the whole, unless training and
        # evaluation files grow apart.
        largest = [a for a in by_amount if not any(_covers(b, a) for b in by_amount if b != a)]
        counts = [self.present[folder, train, evaluation] for train, evaluation in largest]
        files, size, missing, missing_size = max(counts)
        if len(counts) > 1:
            files, missing = sum(count[0] for count in counts), sum(count[2] for count in counts)
            size, missing_size = sum(count[1] for count in counts), sum(count[3] for count in counts)
        points = tuple(sorted(number for numbers in by_amount.values() for number in numbers))
        return DataSet(
            folder, size, missing_size, files, missing, points, tuple(by_amount[amount][0] for amount in largest)
        )


def _covers(more: tuple[int, int], less: tuple[int, int]) -> bool:
    return more[0] >= less[0] and more[1] >= less[1]
