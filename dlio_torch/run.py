"""The composition root: configuration -> data -> training -> run directory and report.

Everything is put together here and nowhere else; the parts below know nothing of each other's
construction.
"""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np

from dlio_torch import __version__
from dlio_torch.analysis.cache import cached_before, counts_device
from dlio_torch.analysis.collect import RankResult, collect
from dlio_torch.compute.calibrate import Calibration, load_or_measure
from dlio_torch.compute.emulate import make_emulator
from dlio_torch.config.compose import Composed
from dlio_torch.config.emit import as_dict, sources_to_yaml, to_yaml
from dlio_torch.config.schema import Config
from dlio_torch.config.validate import check_world
from dlio_torch.data import layout
from dlio_torch.data.assemble import assemble, fit_steps
from dlio_torch.data.generate import Generated, generate
from dlio_torch.data.layout import Manifest
from dlio_torch.data.pipeplan import Plan
from dlio_torch.dist.base import Communicator
from dlio_torch.dist.leave import bounded
from dlio_torch.dist.registry import connect
from dlio_torch.environment import describe
from dlio_torch.errors import ConfigError, DataError, DlioError, ThresholdMissed
from dlio_torch.formats import registry
from dlio_torch.formats.base import Format
from dlio_torch.report.console import print_report
from dlio_torch.report.expect import compare
from dlio_torch.report.found import found_lines
from dlio_torch.report.progress import Progress
from dlio_torch.rundir import RunDir
from dlio_torch.trace.chrome import write_trace
from dlio_torch.trace.events import read_events
from dlio_torch.trace.profiler import ProfilerSession
from dlio_torch.trace.spans import NULL, Recorder
from dlio_torch.train.checkpoint import Checkpointer
from dlio_torch.train.counters import tree_counters
from dlio_torch.train.steps import StepLog, write_steps
from dlio_torch.train.trainer import Trainer, TrainResult
from dlio_torch.units import format_size

_CLOSE_S = 5.0  # for workers and threads to end after a failure; a hanging file system may keep them
_INTERRUPTED = 130


def run(composed: Composed, phases: Sequence[str] = ("generate", "train")) -> int:
    """Do the phases on all ranks; returns the exit code.

    Args:
        composed: the configuration and where it came from.
        phases: ``generate``, ``train`` or both.

    Raises:
        DlioError: the same exit code on every rank.
    """
    comm = connect(composed.config.dist)
    try:
        _same_configuration(composed.config, comm)
        missed = _Run(composed, comm).do(phases)
    except DlioError as error:
        comm.fail(str(error), error.exit_code)
        raise
    except KeyboardInterrupt as error:
        code = getattr(error, "exit_code", _INTERRUPTED)
        comm.fail("interrupted" if code == _INTERRUPTED else "terminated", code)
        raise
    except BaseException as error:
        comm.fail(f"{type(error).__name__}: {error}", 1)
        raise
    comm.close()
    if missed is None:
        return 0
    if comm.rank == 0:
        raise missed
    return missed.exit_code  # rank 0 says what all ranks know


def _same_configuration(config: Config, comm: Communicator) -> None:
    """Ranks with different options would wait for each other for ever."""
    first = comm.broadcast_object(_flat(as_dict(config)))
    mine = _flat(as_dict(config))
    different = sorted(key for key in first.keys() | mine.keys() if first.get(key) != mine.get(key))
    if different:
        key = different[0]
        raise ConfigError(
            f"rank {comm.rank} was started with {key}={mine.get(key)!r}, rank 0 with {first.get(key)!r}",
            hint="start all ranks with the same arguments and recipe",
        )


def _flat(value: Any, prefix: str = "") -> dict[str, Any]:
    if isinstance(value, dict):
        return {
            k: v for name, item in value.items() for k, v in _flat(item, f"{prefix}.{name}" if prefix else name).items()
        }
    return {prefix: value}


@contextlib.contextmanager
def _closing(close: Callable[[], None]) -> Iterator[None]:
    """Close something at the end; after a failure without waiting for ever, and without another error."""
    try:
        yield
    except BaseException:

        def quietly() -> None:
            with contextlib.suppress(Exception):
                close()

        bounded(quietly, _CLOSE_S)
        raise
    close()


class _Run:
    """One run of one rank."""

    def __init__(self, composed: Composed, comm: Communicator) -> None:
        self.composed = composed
        self.config = composed.config
        self.comm = comm
        self.first = comm.rank == 0
        self.format: Format = registry.create(self.config.dataset, self.config.seed)
        self.counts_device = False  # known to rank 0 with the environment
        self.progress = Progress(sys.stderr, enabled=self.config.output.progress and self.first)

    def do(self, phases: Sequence[str]) -> ThresholdMissed | None:
        """Generate and train; returns the threshold that the finished run missed, the same on every rank."""
        trains = "train" in phases
        if self.first:
            for note in self.composed.notes:
                print(f"scale: {note}", file=sys.stderr)
        manifests, self.details = self._manifests()
        train = manifests["train"]
        self.config = fit_steps(self.config, manifests, self.comm.world_size, self.composed.scaled)
        check_world(self.config, self.comm.world_size, train.num_samples, train.num_files, self.composed.sources)
        if "generate" not in phases and self.config.dataset.path is None and self.format.needs_files:
            self._use_existing(manifests)
        directory = self._run_directory() if trains else None
        recorder = NULL
        if directory is not None and self.config.trace.spans:
            recorder = Recorder(directory.events, self.comm.rank)
        made = self._generate(recorder) if "generate" in phases else None
        if directory is None:
            return None
        return self._train(directory, manifests, recorder, made)

    # --- data ------------------------------------------------------------------------------------

    def _manifests(self) -> tuple[dict[str, Manifest], dict[str, Any] | None]:
        """Where the samples lie; of existing data also what the first file looks like inside."""
        if self.config.dataset.path is None:
            return layout.generated(self.config, self.format), None
        # One rank looks at the files; an error there ends the others through the communicator.
        found = layout.existing(self.config, self.format) if self.first else None
        found = self.comm.broadcast_object(found)
        assert found is not None
        manifest, details = found
        details = {"files": manifest.num_files, "samples": manifest.num_samples, **details}
        if self.first:
            print("\n".join(found_lines(self.config.dataset.path, details)), file=sys.stderr)
        # Existing data have no evaluation files of their own: evaluation reads the same ones.
        return {"train": manifest, "eval": manifest}, details

    def _generate(self, recorder: Recorder) -> Generated | None:
        if self.config.dataset.path is not None or not self.format.needs_files:
            return None
        with self.progress.task("generating", "files") as update:
            made = generate(self.config, self.format, self.comm, recorder, update)
        if self.first:
            folder = layout.data_folder(self.config, self.format)
            rate = f", {format_size(made.bytes / made.seconds)}/s" if made.bytes and made.seconds else ""
            print(
                f"data: {folder}: {made.written} file(s) written ({format_size(made.bytes)}{rate}), "
                f"{made.reused} reused",
                file=sys.stderr,
            )
        return made

    def _use_existing(self, manifests: dict[str, Manifest]) -> None:
        """Check that the generated data are there, and take the parameters that they were made with."""
        found = None
        if self.first:
            folder = layout.data_folder(self.config, self.format)
            layout.check_present(manifests)
            found = layout.read_description(folder)
            if found is None:
                raise DataError(f"{folder / layout.DESCRIPTION} does not exist", hint="run the verb generate")
        found = self.comm.broadcast_object(found)
        assert found is not None
        self.format.use_parameters(found["parameters"])

    # --- training --------------------------------------------------------------------------------

    def _run_directory(self) -> RunDir:
        config, made = self.config, None
        if self.first:
            made = RunDir.create(config.output.root, config.recipe, config.output.dir)
            made.write_text(made.config, to_yaml(config))
            made.write_text(made.sources, sources_to_yaml(self.composed.sources))
            data = Path(config.dataset.path or config.dataset.root)
            environment = describe({"data": data, "runs": made.path})
            self.counts_device = counts_device(environment["mounts"]["data"])
            ranks = {"backend": self.comm.name, "detail": self.comm.detail, "world_size": self.comm.world_size}
            made.write_json(made.environment, {**environment, "ranks": ranks, "dlio_torch": __version__})
        found = self.comm.broadcast_object(made)
        assert found is not None
        return found

    def _train(
        self, directory: RunDir, manifests: dict[str, Manifest], recorder: Recorder, made: Generated | None
    ) -> ThresholdMissed | None:
        config = self.config
        calibration = load_or_measure()
        cached = cached_before(manifests["train"]) if self.first and self.format.needs_files else None
        with contextlib.ExitStack() as stack:
            own = self._measure(directory, manifests, recorder, calibration, stack)
        everyone = self.comm.gather_objects(own)
        summary = None
        if everyone is not None:
            summary = self._finish(directory, everyone, made, cached, calibration)
        au = self.comm.broadcast_object(summary["au"]["mean"] if summary is not None else None)
        if config.train.min_au and au is not None and au < config.train.min_au:
            return ThresholdMissed(
                f"accelerator utilisation is {au:.4f}, below train.min_au={config.train.min_au}",
                hint=f"see {directory.path}",
            )
        return None

    def _measure(
        self,
        directory: RunDir,
        manifests: dict[str, Manifest],
        recorder: Recorder,
        calibration: Calibration,
        stack: contextlib.ExitStack,
    ) -> RankResult:
        """The training of this rank; what must be closed afterwards is left on ``stack``."""
        config = self.config
        stack.enter_context(_closing(recorder.close))
        before = tree_counters() if config.loader.in_memory else None
        loaders = assemble(config, self.format, manifests, recorder, self.comm.rank, self.comm.world_size)
        after = tree_counters() if before is not None else None
        load_io = after - before if after is not None and before is not None else None
        stack.enter_context(_closing(loaders.close))
        checkpointer = Checkpointer(config.checkpoint, directory.path / "checkpoints", self.comm.rank, recorder)
        emulator = make_emulator(
            config.compute, seed=config.seed, rank=self.comm.rank, spin_tail_ns=calibration.spin_tail_ns
        )
        stack.enter_context(_closing(emulator.close))
        log = StepLog(directory.steps(self.comm.rank), self.comm.rank)
        stack.enter_context(_closing(log.close))
        profiler = ProfilerSession(
            directory.tensorboard,
            f"rank{self.comm.rank}",
            warmup=config.train.warmup_steps,
            active=config.trace.profiler_steps,
            enabled=config.trace.profiler,
            rank=self.comm.rank,
            events=directory.events if config.trace.spans else None,
        )
        with self.progress.task("training", "steps") as update:
            trainer = Trainer(
                config.train,
                self.comm,
                loader=loaders.train,
                eval_loader=loaders.eval,
                emulator=emulator,
                checkpointer=checkpointer,
                log=log,
                recorder=recorder,
                profiler=profiler,
                progress=update,
                num_samples=manifests["train"].num_samples,
                restore=config.checkpoint.restore,
                verify=config.verify,
            )
            result = trainer.run()
        self._check_counts(result, loaders.sampler)
        return RankResult(result, loaders.load_s, loaders.load_bytes, load_io, emulator.describe())

    # --- results ---------------------------------------------------------------------------------

    def _check_counts(self, result: TrainResult, sampler: Plan) -> None:
        """With ``verify``: each sample came exactly as often as the access pattern says."""
        for figures in result.epochs:
            if figures.seen is None:
                continue
            wrong = np.flatnonzero(figures.seen != sampler.expected_counts(figures.epoch - 1))
            if len(wrong):
                raise DataError(
                    f"epoch {figures.epoch}: {len(wrong)} samples did not come as often as access.order says, sample "
                    f"{wrong[0]} came {figures.seen[wrong[0]]} times"
                )

    def _finish(
        self,
        directory: RunDir,
        everyone: list[RankResult],
        made: Generated | None,
        cached: float | None,
        calibration: Calibration,
    ) -> dict[str, Any]:
        """Write what all ranks have found, and print it."""
        config = self.config
        about = {
            "dlio_torch": __version__,
            "ranks_by": {"backend": self.comm.name, "detail": self.comm.detail},
            "scaled": self.composed.notes,
            "dataset": {
                "format": self.format.name,
                "path": str(Path(config.dataset.path or layout.data_folder(config, self.format)).absolute()),
                "real_input": config.dataset.path is not None,
                "layout": self.details,
            },
            "generate": asdict(made) if made is not None else None,
            "calibration": calibration.to_dict(),
        }
        reads_files = self.format.needs_files and not config.loader.in_memory
        summary = collect(
            config, everyone, reads_files=reads_files, device=self.counts_device, cached=cached, about=about
        )
        directory.write_json(directory.summary, summary)
        write_steps(directory.steps(), {rank: result.train.steps for rank, result in enumerate(everyone)})
        for rank in range(len(everyone)):
            directory.steps(rank).unlink(missing_ok=True)
        if config.trace.spans:
            profiles = sorted(directory.tensorboard.glob("*.pt.trace.json*"))
            write_trace(read_events(directory.events), directory.trace, profiler_traces=profiles)
        rows = compare(config.expect, summary)
        print_report(summary, stream=sys.stdout, run_dir=directory.path, expect=rows)
        return summary
