"""Runs started from Python, and the results of finished runs and recordings."""

from __future__ import annotations

import re
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dlio_torch.api.configuration import check_count, chosen, settings
from dlio_torch.config.emit import to_yaml
from dlio_torch.config.schema import Config
from dlio_torch.dist.launcher import without_launcher
from dlio_torch.errors import ConfigError, DataError, DlioError, PreconditionError, RunFailed, ThresholdMissed
from dlio_torch.run_directory.run_dir import RunDir
from dlio_torch.supervision.run_process import emulator, environment, run_process

if TYPE_CHECKING:
    import pandas as pd

_ERRORS: dict[int, type[DlioError]] = {
    kind.exit_code: kind for kind in (ConfigError, PreconditionError, ThresholdMissed)
}
_RESULTS = re.compile(r"^Results: (.+)$", re.MULTILINE)
_LONGEST_S = 1e9
_NO_PROGRESS = "output.progress=false"


@dataclass(frozen=True)
class Run:
    """Results of a run, or a recording of a program.

    Attributes:
        path: its folder.
    """

    path: Path

    @cached_property
    def summary(self) -> dict[str, Any]:
        """Content of ``summary.json``; ``python -m dlio_torch explain KEY`` says what a figure means.

        A recording of a program has the entry ``posix`` alone: the figures of its I/O calls.

        Raises:
            DataError: the run ended before it wrote one, or the file is damaged.
        """
        directory = RunDir(self.path)
        if directory.command.exists() and not directory.summary.exists():
            return {"posix": _figures(self.path)}
        content: dict[str, Any] = directory.read_json(directory.summary)
        return content

    @cached_property
    def steps(self) -> pd.DataFrame:
        """One row a step and rank: ``rank, epoch, step, phase``, times in seconds, ``samples``, ``bytes``.

        Raises:
            DataError: there is no step log, or it is damaged.
        """
        import pandas as pd

        from dlio_torch.train.steps import PHASES, read_steps

        frames = []
        for rank, records in read_steps(RunDir(self.path).steps()).items():
            frame = pd.DataFrame(records)
            for name in [name for name in frame.columns if name.endswith("_ns")]:
                frame[f"{name[:-3]}_s"] = frame.pop(name) / 1e9
            frame["phase"] = [PHASES[number] for number in frame["phase"]]
            frame.insert(0, "rank", rank)
            frames.append(frame)
        return pd.concat(frames, ignore_index=True)

    @cached_property
    def events(self) -> pd.DataFrame:
        """One row a span or I/O call: ``rank, pid, tid, layer, op, file, offset, bytes, start_ns, end_ns``.

        Raises:
            DataError: nothing was recorded, or the files are damaged.
        """
        from dlio_torch.analysis.run_recording import open_recording

        return open_recording(self.path).events.frame


def run(
    config: Config | None = None,
    *,
    recipe: str | Path | None = None,
    overrides: Sequence[str] = (),
    ranks: int = 1,
    quiet: bool = True,
) -> Run:
    """Generates missing data, trains, and returns the results, as ``python -m dlio_torch`` does.

    The run has processes of its own, so that memory, threads and recordings are not mixed with those of the caller.

    Args:
        config: the experiment, as :func:`compose` returns it; ``None``: ``recipe`` and ``overrides`` give it.
        recipe: see :func:`compose`.
        overrides: see :func:`compose`.
        ranks: processes that train together on this machine, started by torchrun.
        quiet: print nothing; else what the command line prints is printed when the run has ended.

    Raises:
        ConfigError: a setting or an argument is wrong.
        PreconditionError: data or space are missing.
        RunFailed: the run began and failed.
        ThresholdMissed: a threshold of the configuration was missed.
    """
    check_count("ranks", ranks)
    experiment = chosen(config, recipe, overrides, world_size=ranks).config
    with tempfile.TemporaryDirectory(prefix="dlio_torch_") as folder:
        arguments, log = settings(recipe, overrides), Path(folder) / "log"
        if config is not None:
            path = Path(folder) / "config.yaml"
            path.write_text(to_yaml(experiment), encoding="utf-8")
            arguments = [f"recipe={path}"]
        quietly = [] if any(argument.startswith("output.progress=") for argument in arguments) else [_NO_PROGRESS]
        command = emulator(["run", *arguments, *quietly], ranks)
        ended = run_process(command, log, timeout_s=_LONGEST_S, environ=without_launcher(environment()))
        text = log.read_text(encoding="utf-8", errors="replace")
    if not quiet:
        print(text, end="")
    if ended.exit_code:
        raise _ERRORS.get(ended.exit_code, RunFailed)(ended.error)
    return Run(Path(_RESULTS.findall(text)[-1]))


def load_run(path: str | Path) -> Run:
    """Opens the folder of a run, or of a recording that the verb ``trace`` or ``iotrace.record`` wrote.

    Raises:
        DataError: the folder is neither.
        ConfigError: ``path`` is no path.
    """
    from dlio_torch.analysis.run_recording import is_recorded

    if not isinstance(path, (str, Path)):
        raise ConfigError(f"path={path!r}: expected a path", hint='write load_run("runs/<recipe>/<time>")')
    folder = Path(path).expanduser().absolute()
    if not folder.is_dir() or not is_recorded(RunDir(folder)):
        raise DataError(f"{path} is not the folder of a run or of a recording", hint="give runs/<recipe>/<time>")
    return Run(folder)


def _figures(path: Path) -> dict[str, Any]:
    """Figures of the I/O calls on data files."""
    from dlio_torch.analysis.run_recording import open_recording
    from dlio_torch.iotrace.figures.call_selection import data_only
    from dlio_torch.iotrace.figures.io_metrics import analyse

    return analyse(data_only(open_recording(path)))
