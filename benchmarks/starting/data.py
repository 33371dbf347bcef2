"""A published data set without its terabytes: one real file of each kind, under the names of all its files.

Every file of the data set exists under its name, so that everything which looks for files finds them: the first of a
split is written by the format itself, the others are symbolic links to it.  Flat binary records are a sparse file with
a real index.  What is smaller than published is said in :data:`SMALLER`.
"""

from __future__ import annotations

import json
import os
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, BinaryIO

from dlio_torch.config.compose import compose
from dlio_torch.config.schema import Config
from dlio_torch.data.dataset import description
from dlio_torch.data.dataset.manifest import Manifest, data_folder, generated_manifests
from dlio_torch.formats.core import registry
from dlio_torch.formats.core.format import Format


@dataclass(frozen=True)
class Smaller:
    """A quantity that is smaller than published, so that a file can be written quickly.

    Attributes:
        options: of the command line; they change the size of samples, not how many there are.
        stored: samples that a file read from its start holds: no more is asked of it for the first batch; 0: all.
        why: in a few words.
    """

    options: tuple[str, ...] = ()
    stored: int = 0
    why: str = ""


SMALLER = {
    "bert": Smaller(stored=4096, why="4,096 of 313,532 records of the file"),
    "candle_nt3": Smaller(("dataset.fields.1.shape=[605]",), why="605 of 60,483 columns"),
    "candle_nt3_pandas3": Smaller(("dataset.fields.1.shape=[6048]",), why="6,048 of 60,483 columns"),
    "cosmic_tagger": Smaller(
        ("dataset.larcv3.voxels_mean=190", "dataset.larcv3.voxels_stdev=77", "dataset.larcv3.unread_bytes=0"),
        why="190 of 19,046 voxels an event",
    ),
    "cosmoflow": Smaller(stored=4, why="4 of 64 records of the file"),
    "ffn": Smaller(stored=40_000, why="40,000 of 20,000,000 coordinates of the list"),
}


def arguments(recipe: str, root: Path) -> list[str]:
    """Options of a start of ``recipe`` as published, with its data below ``root``."""
    smaller = SMALLER.get(recipe, Smaller())
    quiet = ("output.progress=false", "storage.limits=off", "cache=as_is")
    return [f"recipe={recipe}", "scale=paper", f"dataset.root={root}", *smaller.options, *quiet]


def make(recipe: str, root: Path) -> Config:
    """Writes the data set of ``recipe`` below ``root``; returns the configuration."""
    config = compose(arguments(recipe, root), environ={}).config
    fmt = registry.create(config.dataset, config.seed)
    if fmt.needs_files:
        folder = data_folder(config, fmt)
        folder.mkdir(parents=True, exist_ok=True)
        found = description.describe(config, fmt)
        fmt.use_parameters(found["parameters"])
        for manifest in generated_manifests(config, fmt).values():
            _split(manifest, fmt, SMALLER.get(recipe, Smaller()).stored)
        (folder / description.DESCRIPTION).write_text(json.dumps(found), encoding="utf-8")
    return config


def _split(manifest: Manifest, fmt: Format, stored: int) -> None:
    first = manifest.path(0)
    first.parent.mkdir(parents=True, exist_ok=True)
    if fmt.name == "indexed_binary":
        fmt.write_pieces = partial(_sparse, fmt)  # type: ignore[attr-defined]
    with ThreadPoolExecutor(2) as pool:
        fmt.write(first, manifest.first_sample, stored or manifest.count(0), pool)
    family = fmt.files(first)
    folders = {first.parent}
    for number in range(1, manifest.num_files):
        path = manifest.path(number)
        if path.parent not in folders:
            path.parent.mkdir(parents=True, exist_ok=True)
            folders.add(path.parent)
        for real, other in zip(family, fmt.files(path), strict=True):
            os.symlink(os.path.relpath(real, other.parent), other)  # short enough to lie in the inode


def _sparse(fmt: Format, file: BinaryIO, stream: int, first: int, count: int, *_: Any) -> None:
    """Creates all records of a flat file as a hole."""
    file.truncate(int(count * fmt.sample_bytes()))
