"""Checks that files with a final name are complete: data sets, checkpoints, results."""

from __future__ import annotations

import gzip
import json
import re
from collections.abc import Callable, Iterator
from pathlib import Path

import pandas as pd
import torch
import yaml

from dlio_torch.iotrace.events.event_table import read_events
from dlio_torch.run_directory.run_dir import RunDir
from dlio_torch.study.store import STUDY, TRIALS, Store
from dlio_torch.train.steps import read_steps
from dlio_torch.units import parse_size

_READERS: dict[str, Callable[[Path], object]] = {
    ".json": lambda path: json.loads(path.read_text(encoding="utf-8")),
    ".yaml": lambda path: yaml.safe_load(path.read_text(encoding="utf-8")),
    ".csv": pd.read_csv,
    ".parquet": pd.read_parquet,
    ".pt": lambda path: torch.load(path, weights_only=True),
    ".gz": lambda path: json.loads(gzip.decompress(path.read_bytes())),
}


def broken(folder: Path) -> Iterator[str]:
    """Every file below ``folder`` that has its final name and is not complete.

    Files of a data set are looked at by the run that comes later and compares each sample.
    """
    for path in sorted(folder.rglob("*")):
        if not path.is_file() or hidden(path, folder) or path.name == TRIALS:
            continue
        try:
            problem = _look(path)
        except FileNotFoundError:  # it was about to go
            continue
        except Exception as error:  # whatever a reader says of it
            problem = f"{type(error).__name__}: {str(error).splitlines()[0] if str(error) else ''}"
        if problem:
            yield f"{path.relative_to(folder)}: {problem}"
    for run in {path.parent for path in folder.rglob("events") if path.is_dir()}:
        if not hidden(run, folder):
            yield from _events(RunDir(run), folder)
    for study in folder.rglob(STUDY):
        try:
            Store.open(study.parent, write=False).trials()
        except Exception as error:
            yield f"{study.relative_to(folder)}: {error}"


def hidden(path: Path, folder: Path) -> bool:
    """Whether a file, or a folder above it, does not have its final name yet."""
    return any(part.startswith(".") for part in path.relative_to(folder).parts)


def _look(path: Path) -> str:
    if path.suffix == ".html":
        whole = path.read_text(encoding="utf-8").rstrip().endswith("</html>")
        return "" if whole else "the file has no end mark"
    if "checkpoints" in path.parts and path.suffix != ".pt":
        config = yaml.safe_load((path.parent.parent / "config.yaml").read_text(encoding="utf-8"))
        sizes = {file["name"]: file["bytes"] for file in config["checkpoint"]["files"]}
        wanted = parse_size(str(sizes[re.sub(r"-\d+(?=\.)", "-{step}", path.name)]))
        size = path.stat().st_size
        return "" if size == wanted else f"{size} bytes instead of {wanted}"
    if path.suffix in _READERS and path.stat().st_size + 1 and path.name != "horovod.json":
        _READERS[path.suffix](path)
    return ""


def _events(run: RunDir, folder: Path) -> Iterator[str]:
    try:
        read_events(run.events)
        for rank in range(2):
            if run.steps(rank).exists() or run.steps(rank).with_name(run.steps(rank).name + ".journal").exists():
                read_steps(run.steps(rank))
    except Exception as error:
        yield f"{run.path.relative_to(folder)}: {error}"
