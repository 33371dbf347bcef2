"""What the tool itself does to data files before the first batch: it looks at each once, and records none of that."""

from __future__ import annotations

import re
import sys
from collections import Counter
from pathlib import Path

import pytest
from ranks import clean_environ
from strace import OPENS, need_strace, trace

from dlio_torch.config.compose import compose
from dlio_torch.data.dataset.generation import generate
from dlio_torch.data.dataset.manifest import generated_manifests
from dlio_torch.dist.base import SingleCommunicator
from dlio_torch.formats.core import registry
from dlio_torch.iotrace.events.event_table import read_events
from dlio_torch.iotrace.recorder.spans import NULL
from dlio_torch.storage.local.cache_process import FILES_AT_ONCE

FILES = 2 * FILES_AT_ONCE
STATS = ("?stat", "?lstat", "?newfstatat", "?statx", "?access", "?faccessat", "?faccessat2", "?readlink", "?readlinkat")
_PATH = re.compile(r'"(/[^"]+)"')


def calls_by_name(dataset: str, folder: Path, *, existing: bool) -> dict[str, Counter[str]]:
    """Calls that name each data file that a run does not read, by file: ``stat`` and the like, and ``open``.

    The run takes one step of one sample and one file each; its recorded calls are checked to be of that file only.
    """
    need_strace()
    amount = (
        "recipe=minimal",
        "cache=as_is",
        f"dataset={dataset}",
        f"dataset.num_files={FILES}",
        "dataset.samples_per_file=1",
    )
    words = [*amount, "train.batch_size=1", "train.steps=1", "train.epochs=1", "access=sequential", "compute=none"]
    words += ["dataset.fields.0.shape=[4]", "output.dir=out", "trace.posix=true", "storage.limits=off"]
    config = compose([*words, f"dataset.root={folder / 'data'}", "generate.fsync=false"], environ={}).config
    fmt = registry.create(config.dataset, config.seed)
    generate(config, fmt, SingleCommunicator(), NULL)
    manifest = generated_manifests(config, fmt)["train"]
    files = {str(path): path.name for number in range(1, FILES) for path in fmt.files(manifest.path(number))}
    place = f"dataset.path={manifest.path(0).parent}" if existing else f"dataset.root={folder / 'data'}"
    command = [sys.executable, "-m", "dlio_torch", *words, place]
    log = trace(command, folder / "log", cwd=folder, env=clean_environ(), traced=(*OPENS, *STATS))
    recorded = read_events(folder / "out" / "events").frame
    recorded = set(recorded[recorded["layer"] == "posix"]["file"])
    assert str(manifest.path(0)) in recorded
    assert not recorded & set(files)
    found = {name: Counter[str]() for name in files.values()}
    for call in log:
        path = _PATH.search(call.arguments)
        if path is not None and path[1] in files:
            found[files[path[1]]]["open" if call.name in OPENS else "stat"] += 1
    return found


@pytest.mark.ranks
def test_generated_files_take_one_stat_each(tmp_path: Path) -> None:
    found = calls_by_name("indexed_binary", tmp_path, existing=False)
    assert {calls["stat"] for calls in found.values()} == {1}
    # The page cache is probed in some files only, by opening each of them once.
    assert {calls["open"] for calls in found.values()} == {0, 1}
    families = Counter(Path(name).stem for name, calls in found.items() if calls["open"])
    assert 0 < len(families) <= FILES_AT_ONCE


@pytest.mark.ranks
def test_existing_files_take_one_stat_and_the_check_of_their_layout(tmp_path: Path) -> None:
    found = calls_by_name("npz", tmp_path, existing=True)
    assert {calls["stat"] for calls in found.values()} == {1}
    assert {calls["open"] for calls in found.values()} == {1, 2}
    assert 0 < sum(calls["open"] == 2 for calls in found.values()) <= FILES_AT_ONCE
