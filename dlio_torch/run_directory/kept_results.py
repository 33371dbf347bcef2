"""Earlier results in the folder of a new run: they are kept as ``<folder>.1``, so that a command can be repeated.

Only a folder with the marker of a finished run or recording of this user is renamed; any other folder stays, and the
new run is refused.
"""

from __future__ import annotations

import contextlib
import os
import socket
from collections.abc import Iterator, Mapping
from itertools import count
from pathlib import Path

from dlio_torch.config.schema import Config
from dlio_torch.errors import PreconditionError
from dlio_torch.ownership.marker import NotOwned, rename_marker
from dlio_torch.ownership.removal import marker_of
from dlio_torch.run_directory.results_folder import check_results_folder, is_vacant
from dlio_torch.run_directory.run_dir import RunDir
from dlio_torch.run_directory.running_process import running_process, states
from dlio_torch.syserrors import refused

_KINDS = ("run", "recording")


def used_paths(config: Config) -> dict[str, Path]:
    """Paths on this machine that a run reads or writes beside its results, by the option that names them."""
    dataset = config.dataset
    options = {
        "dataset.root": dataset.root if dataset.path is None else None,
        "dataset.path": dataset.path,
        "train.resume": config.train.resume,
        "stage.dir": config.stage.dir,
        "checkpoint.root": config.checkpoint.root,
    }
    return {key: Path(path).expanduser() for key, path in options.items() if path is not None and "://" not in path}


def check_run_folder(config: Config, source: str) -> str:
    """Check, without writing, that the folder ``output.dir`` can be made and written, or be renamed before.

    Args:
        config: the configuration of a run that sets ``output.dir``.
        source: source of that option's value.

    Returns:
        The line that announces an earlier run there; empty: there is none.

    Raises:
        PreconditionError: it cannot.
    """
    assert config.output.dir is not None
    folder = Path(config.output.dir)
    with contextlib.suppress(OSError, ValueError, RuntimeError):  # the check below tells them
        absolute = folder.expanduser().absolute()
        if absolute.is_dir() and not is_vacant(absolute):
            if problem := why_not_kept(absolute, used_paths(config)):
                raise PreconditionError(f"output.dir={folder} ({source}): {problem}", hint="choose another folder")
            check_results_folder(absolute.parent, "output.dir", source, empty=False)
            return f"output.dir={folder}: the earlier results there will be kept as {_free(absolute)}"
    check_results_folder(folder, "output.dir", source)
    return ""


def why_not_kept(folder: Path, used: Mapping[str, Path] | None = None) -> str:
    """Reason why an occupied folder cannot be renamed for a new run; empty: it can.

    Args:
        folder: an existing folder that is not empty.
        used: paths that the new run reads or writes, by the option that names them.
    """
    try:
        is_result = marker_of(folder).kind in _KINDS
    except (NotOwned, OSError):  # OSError also for a link: its target may lie on another file system
        is_result = False
    if not is_result:
        return "the folder is not empty"
    real = folder.resolve()
    if Path.cwd().is_relative_to(real):
        return "the folder is not empty, and is the working directory of this command"
    for option, path in (used or {}).items():
        if path.resolve().is_relative_to(real):
            return f"the folder is not empty, and {option}={path} lies in it"
    return _why_unfinished(RunDir(folder))


def keep_earlier(folder: Path, option: str, used: Mapping[str, Path] | None = None) -> Path | None:
    """Rename a folder of earlier results to ``<folder>.1``, or to the next number that is free.

    Args:
        folder: folder of a new run or recording, absolute.
        option: option that names it, for messages.
        used: see :func:`why_not_kept`.

    Returns:
        The new path; ``None``: the folder is missing or empty.

    Raises:
        PreconditionError: it holds something other than a finished run or recording, or cannot be renamed.
    """
    try:
        if not folder.is_dir() or is_vacant(folder):
            return None
        if problem := why_not_kept(folder, used):
            raise PreconditionError(f"{option}={folder}: {problem}", hint="choose another folder")
        return _renamed(folder)
    except OSError as error:
        raise refused(f"{option}={folder} cannot be renamed", error, elsewhere="choose another folder") from error


def kept_line(option: str, folder: Path | str, kept: Path) -> str:
    """The line that announces a renamed folder."""
    return f"{option}={folder}: the earlier results there are kept as {kept}"


def _names(folder: Path) -> Iterator[Path]:
    for number in count(1):
        yield folder.with_name(f"{folder.name}.{number}")


def _free(folder: Path) -> Path:
    return next(kept for kept in _names(folder) if not os.path.lexists(kept))


def _renamed(folder: Path) -> Path:
    for kept in _names(folder):
        try:
            kept.mkdir()  # claims the name; rename replaces an empty folder
        except FileExistsError:
            continue
        try:
            os.rename(folder, kept)
        except OSError:
            kept.rmdir()
            raise
        rename_marker(kept)
        return kept
    raise AssertionError("count has no end")


def _why_unfinished(directory: RunDir) -> str:
    """Reason why a run or recording may still be written; empty: it has ended."""
    if (process := running_process(directory)) is not None:
        return f"the {process.kind} in the folder is still running (process {process.pid})"
    known = states(directory)
    for state in known:
        if state is not None and state.state == "running" and state.host != socket.gethostname():
            return f"the run in the folder may still be running on host {state.host}"
    if all(state is None for state in known) and not directory.command.exists():
        return "the folder is not empty, and its run may just have begun"
    return ""
