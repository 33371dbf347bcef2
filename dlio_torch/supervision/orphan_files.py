"""Orphaned files of killed processes, and copies that were kept; ``doctor`` and ``clean`` list them.

All files that this tool writes besides its results are covered.  The next command that writes to the same folder
removes most of them.  A file or folder that a living process has locked is never listed.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import re
import socket
import tempfile
import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from dlio_torch import native
from dlio_torch.config.resources import read_document
from dlio_torch.config.schema import Config
from dlio_torch.errors import ConfigError
from dlio_torch.files import locked_folder
from dlio_torch.files.atomic_file import PART, unfinished
from dlio_torch.ownership.marker import NotOwned
from dlio_torch.ownership.names import LOCK
from dlio_torch.ownership.removal import marker_of
from dlio_torch.run_directory import run_state
from dlio_torch.run_directory.results_folder import folder_name
from dlio_torch.run_directory.run_dir import RunDir
from dlio_torch.storage.stage_folder import KEPT, node_folder
from dlio_torch.supervision.ipc_files import is_old, unused_segments, unused_sockets

STAMP = re.compile(r"\d{8}-\d{6}(-\d+)?")
"""Names of run directories below ``output.root``."""
_OLD_S = 3600.0  # an unfinished file in a cache folder that is older has been abandoned
_BEGUN = (
    "dlio_torch.json",
    "config.yaml",
    "sources.yaml",
    "environment.json",
    "state.json",
    "events",
    "checkpoints",
    "checkpoints.json",
)
KIND = "orphaned files"
"""Name of orphaned files in the lines of ``doctor`` and ``clean``."""


@dataclass(frozen=True)
class OrphanFiles:
    """Orphaned files or folders of one kind.

    Attributes:
        kind: what they are, in the plural.
        paths: their paths.
        remedy: the command that removes or uses them.
    """

    kind: str
    paths: tuple[Path, ...]
    remedy: str

    def __str__(self) -> str:
        return f"{len(self.paths)} {self.kind}, the first is {self.paths[0]}; {self.remedy}"


def find(config: Config, *, shared: Path = locked_folder.SHARED_MEMORY, cwd: Path | None = None) -> list[OrphanFiles]:
    """Finds orphaned files in the folders of a configuration, and orphaned files of this user on this machine.

    Args:
        config: names the folders.
        shared: folder of named shared memory.
        cwd: start of relative paths; None: the current folder.
    """
    here = cwd or Path.cwd()
    data, runs = here / config.dataset.root, here / config.output.root
    clean = f"`clean recipe={config.recipe or 'NAME'}` removes them"
    killed = [path for path in run_folders(runs) if was_killed(path)]
    temporary = [file for file in unfinished_results(runs) if file.parent not in killed]
    copies, folders = _left_copies(config), locked_folder.orphans(Path(tempfile.gettempdir()))
    groups = (
        (
            "unfinished files of data generation that was killed",
            _parts(data),
            "the next generation of the data set removes them",
        ),
        ("runs that were killed", killed, f"`report` shows their recordings; {clean}"),
        ("unfinished result files", temporary, "`clean` removes them, and so does writing these results again"),
        ("studies that were killed", _unfinished_studies(studies(runs)), "continue a study with --resume DIR"),
        ("folders of staged copies of runs that were killed", copies, "the next run with stage.dir removes them"),
        ("staged copies that were kept (stage.keep=true)", list(kept(stages(config, here))), clean),
        ("temporary folders of processes that were killed", folders, "`clean` removes them"),
        ("unfinished files in the cache", old_temporary(), "`clean` removes them"),
        (
            "folders of sockets of worker processes that were killed",
            unused_sockets(),
            "no process uses them; remove them with rm -r",
        ),
        (
            "segments of shared memory that no process uses",
            unused_segments(shared),
            "remove them with rm, unless another program uses them",
        ),
    )
    return [OrphanFiles(kind, tuple(paths), remedy) for kind, paths, remedy in groups if paths]


def run_folders(runs: Path) -> list[Path]:
    """Run directories, begun or finished, below the folder of all runs."""
    return [path for path in sorted(runs.glob("*/*")) if path.is_dir() and not path.is_symlink() and is_run(path)]


def is_run(path: Path) -> bool:
    """Whether a folder is a run directory, of a finished run or of a run that was killed early."""
    if (path / "elastic.json").is_file() or all(
        (path / name).is_file() for name in ("config.yaml", "environment.json")
    ):
        return True
    if not STAMP.fullmatch(path.name):
        return False
    with contextlib.suppress(OSError):
        names = [entry.name for entry in path.iterdir()]
        begun = re.compile(r"\.(config|sources|environment|state)\.\w+\.\w{8}\.tmp|\.dlio_torch\.json\.\d+\.part")
        return all(name in _BEGUN or begun.fullmatch(name) for name in names)
    return False


def studies(runs: Path) -> list[Path]:
    """Folders of studies below the folder of all runs."""
    return [file.parent for file in sorted(runs.glob("sweeps/*/*/study.yaml"))]


def is_study_of(folder: Path, recipe: str) -> bool:
    """Whether a folder holds a study of this recipe."""
    return f"recipe={recipe}" in _settings(folder / "study.yaml")


def unfinished_results(runs: Path, *, listed: bool = False) -> list[Path]:
    """Result files below the folder of all runs that a killed process did not finish.

    Args:
        runs: the folder of all runs.
        listed: only files that the markers of their folders list.
    """
    result = []
    for folder in (*run_folders(runs), *studies(runs)):
        files = unfinished(folder)
        with contextlib.suppress(OSError, NotOwned):
            names = marker_of(folder).names if files and listed else None
            result += [file for file in files if names is None or names.has_file((file.name,))]
    return result


def entries(folder: Path, prefix: str = "") -> list[Path]:
    """Entries of a folder whose names begin with ``prefix``, sorted; empty if there is no such folder."""
    try:
        return sorted(path for path in folder.iterdir() if path.name.startswith(prefix))
    except (FileNotFoundError, NotADirectoryError):
        return []


def stages(config: Config, here: Path) -> list[Path]:
    """Folders of staged copies on this node: of the configuration, and of earlier runs of the recipe."""
    folders: dict[Path, None] = {}
    configs: Iterable[Path] = (here / config.output.root / folder_name(config.recipe)).glob("*/config.yaml")
    for text in (config.stage.dir, *map(_stage_of, configs)):
        with contextlib.suppress(ConfigError):  # it names a variable of a job that has ended
            if text:
                folders[node_folder(text)] = None
    return list(folders)


def kept(folders: Iterable[Path], recipe: str | None = None) -> Iterator[Path]:
    """Staged copies in ``folders`` that were kept (``stage.keep``)."""
    for folder in folders:
        for mark in sorted(folder.glob(f"{locked_folder.PREFIX}*{KEPT}")):
            copies = mark.with_name(mark.name.removesuffix(KEPT))
            content = _json(mark)
            if isinstance(content, dict) and "recipe" in content and recipe in (None, content["recipe"]):
                yield copies


def old_temporary(cache: Path | None = None) -> list[Path]:
    """Files in the cache folders that a process began to write an hour ago or earlier, and did not finish."""
    now, result = time.time(), []
    for folder in (cache,) if cache is not None else (native.cache_dir(), native.scratch_dir()):
        for path in sorted((*folder.glob(".*.tmp"), *folder.glob("native/.*.tmp"))):
            with contextlib.suppress(OSError):
                if now - path.stat().st_mtime > _OLD_S:
                    result.append(path)
    return result


def _parts(data: Path) -> list[Path]:
    """Unfinished files of data sets that no process writes."""
    parts = sorted(data.glob(f".*{PART}*"))
    for folder in sorted(path for path in data.glob("*") if path.is_dir()):
        if not is_held(folder / LOCK):
            parts += sorted(folder.rglob(f".*{PART}*"))
    return [path for path in parts if not any(PART in parent.name for parent in path.parents)]


def is_held(lock: Path) -> bool:
    """Whether a living process holds a lock."""
    with contextlib.suppress(OSError):
        descriptor = os.open(lock, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except BlockingIOError:
            return True
        finally:
            os.close(descriptor)
    return False


def was_killed(run: Path) -> bool:
    """Whether the processes of a run were killed; only those of this machine can be known."""
    state = run_state.read(RunDir(run).state)
    if state is not None:
        return state.state == "running" and state.host == socket.gethostname() and state.why_early() is not None
    return bool(STAMP.fullmatch(run.name)) and not (run / "summary.json").exists() and is_old(run)


def _unfinished_studies(studies: list[Path]) -> list[Path]:
    """Studies without a table, which were killed: only SIGKILL ends a study before it writes its table."""
    return [path for path in studies if not (path / "table.csv").exists() and not is_held(path / ".lock")]


def _left_copies(config: Config) -> list[Path]:
    if config.stage.dir is None:
        return []
    with contextlib.suppress(ConfigError):
        return locked_folder.orphans(node_folder(config.stage.dir))
    return []


def _stage_of(file: Path) -> str | None:
    try:
        folder = read_document(file, str(file), file.name).tree["stage"]["dir"] if file.is_file() else None
    except (OSError, ConfigError, TypeError, KeyError):
        return None
    return folder if isinstance(folder, str) else None


def _settings(study: Path) -> list[str]:
    try:
        settings = read_document(study, str(study), study.name).tree["study"]["settings"] if study.is_file() else None
    except (OSError, ConfigError, TypeError, KeyError):
        return []
    return [str(setting) for setting in settings] if isinstance(settings, list) else []


def _json(path: Path) -> Any:
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError):
        return None
