"""``loader.io``: the same batches and errors by io_uring as by threads, and threads where it is refused."""

from __future__ import annotations

import errno
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from data_files import epoch_of
from decoupled_data import LAYOUTS, assert_same, data_of, decoupled, faithful, good_and_bad
from rings import needs_uring, without_uring
from run_summaries import printed, summary_of

from dlio_torch.config.compose import compose
from dlio_torch.config.schema import LoaderConfig
from dlio_torch.data.engines.decoupled import reading_io
from dlio_torch.data.engines.decoupled.prefetch_window import window_of_machine
from dlio_torch.data.engines.decoupled.reading_io import effective_io, open_reading_mover
from dlio_torch.data.order.sampler import BatchSampler
from dlio_torch.data.order.specification import SamplerSpec
from dlio_torch.errors import ConfigError
from dlio_torch.formats.core.registry import facts
from dlio_torch.preflight.uring_reads import uring_lines

REFUSED = "a test refuses it"
RING = ("recipe=minimal", "loader=decoupled", "dataset=npy", "loader.io=io_uring")
READ_BY_RANGES = [
    name
    for name, (_, dataset) in LAYOUTS.items()
    if facts(dataset["format"]).ranges_past_cache(
        compose([*RING[:2], f"dataset={dataset['format']}"], cwd=Path(), environ={}).config
    )
]


@needs_uring
@pytest.mark.parametrize("layout", READ_BY_RANGES)
def test_batches_are_those_of_the_library(layout: str, tmp_path: Path) -> None:
    fmt, manifest = data_of(tmp_path, layout)
    sampler = BatchSampler(SamplerSpec(batch_size=4, order="shuffled", seed=3), num_samples=21)
    loader = decoupled(fmt, manifest, sampler, io="io_uring", queue_depth=3, transfer_size=700)
    for want, got in zip(epoch_of(faithful(fmt, manifest, sampler)), epoch_of(loader), strict=True):
        assert_same(want, got)
    loader.close()


@needs_uring
@pytest.mark.parametrize("workers", [0, 1])
def test_a_cut_file_is_one_line_with_file_and_sample(workers: int, tmp_path: Path) -> None:
    fmt, manifest = data_of(tmp_path, "npy")
    sampler = BatchSampler(SamplerSpec(batch_size=1), num_samples=21)
    options = {"num_workers": workers, "multiprocessing_context": "fork"} if workers else {}
    lines = []
    for io in ("threads", "io_uring"):
        loader = decoupled(fmt, manifest, sampler, io=io, **options)
        if not lines:
            epoch_of(loader)  # the layout is known when the file is cut
            loader.close()
            loader = decoupled(fmt, manifest, sampler, io=io, **options)
            path = manifest.path(1)
            path.write_bytes(path.read_bytes()[:-100])
        lines.append(good_and_bad(loader))
        loader.close()
    assert lines[0] == lines[1]
    good, bad = lines[1]
    assert good < 21
    assert all(str(manifest.path(1)) in line and "\n" not in line for line in bad)


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        (
            ("loader.io=threads", "loader.queue_depth=4"),
            r"loader\.queue_depth=4 .*loader\.io=threads.*one read call in ",
        ),
        (("dataset=tfrecord",), r"loader\.io=io_uring .*dataset\.format=tfrecord.*set loader\.io=threads"),
        (("loader.replay=reads",), r"loader\.io=io_uring .*loader\.replay=reads.*set loader\.io=threads"),
        (("loader.engine=dataloader",), r"loader\.io=io_uring .*only loader\.engine=decoupled has this option"),
        (("loader.read_to=device", "train.device=cuda"), r"loader\.io=io_uring .*loader\.read_to=device.*cuFile"),
    ],
)
def test_options_that_do_not_fit_are_refused(arguments: tuple[str, ...], problem: str, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=problem):
        compose([*RING, *arguments], cwd=tmp_path)


@needs_uring
@pytest.mark.parametrize("direct", [False, True])
def test_the_option_decides(direct: bool) -> None:
    ring, threads = LoaderConfig(io="io_uring", queue_depth=7), LoaderConfig()
    assert open_reading_mover(ring, direct=direct).implementation.startswith("read_uring.c")
    assert open_reading_mover(threads, direct=direct).implementation.startswith(
        "read_direct.c" if direct else "read_extents.c"
    )
    window = {"window_bytes": window_of_machine()}
    assert effective_io(ring, 1) == {"by": "io_uring", "queue_depth": 7, "why": None, **window}
    assert effective_io(threads, 1) == {"by": "threads", "queue_depth": 1, "why": None, **window}
    workers = replace(threads, num_workers=2)
    assert effective_io(workers, 1 << 30)["window_bytes"] == 4 << 30  # two batches of each worker
    assert effective_io(replace(workers, prefetch_bytes=1 << 20), 1 << 30)["window_bytes"] == 1 << 20


def test_a_refusal_is_one_line_and_threads_read(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(reading_io, "uring_refusal", lambda depth: REFUSED)
    config = compose([*RING], cwd=tmp_path).config
    (line,) = uring_lines(config)
    assert line == (
        "loader.io=io_uring: io_uring cannot be used here: a test refuses it; reader threads read by read calls instead"
    )
    assert open_reading_mover(config.loader, direct=False).implementation.startswith("read_extents.c")
    entry = {"by": "threads", "queue_depth": 1, "why": REFUSED, "window_bytes": window_of_machine()}
    assert effective_io(config.loader, 1) == entry
    assert not list(uring_lines(compose([*RING, "loader.io=threads"], cwd=tmp_path).config))


@needs_uring
def test_a_trace_without_these_reads_is_announced(tmp_path: Path) -> None:
    assert not list(uring_lines(compose([*RING], cwd=tmp_path).config))
    (line,) = uring_lines(compose([*RING, "trace.posix=true"], cwd=tmp_path).config)
    assert line.startswith("trace.posix with loader.io=io_uring: reads by io_uring are no calls that can be recorded")


RINGS: list[dict[str, Any] | None] = [{"by": "io_uring", "queue_depth": 32, "why": None}]
THREADS: list[dict[str, Any] | None] = [{"by": "threads", "queue_depth": 1, "why": REFUSED}]


@pytest.mark.parametrize(
    ("ranks", "text"),
    [
        (RINGS * 2, "io_uring, up to 32 requests in flight per reader thread"),
        (RINGS + THREADS, f"io_uring on 1 of 2 ranks, up to 32 requests in flight per reader thread; {REFUSED}"),
        (THREADS, f"read calls of threads, because io_uring cannot be used: {REFUSED}"),
        ([None], ""),
        ([{"by": "threads", "queue_depth": 1, "why": None}], ""),
    ],
)
def test_the_report_says_what_read(
    ranks: list[dict[str, Any] | None], text: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    page = printed(summary_of({"loader_io": ranks}), monkeypatch, columns=400)
    rows = [line for line in page.splitlines() if line.startswith("reads by")]
    assert bool(rows) == bool(text)
    assert all(part in rows[0] for part in text.split("; ") if text)
    assert ("torage or page cache" in page) == (RINGS[0] in ranks)


RUN = """
import sys
from dlio_torch.cli import main
sys.exit(main(sys.argv[1:]))
"""


def test_a_run_in_a_container_that_forbids_it_reads_by_threads(tmp_path: Path) -> None:
    arguments = [*RING, "verify=true", "train.warmup_steps=0", "storage.limits=off", "output.dir=out"]
    done = without_uring(errno.EPERM, RUN, arguments, tmp_path)
    assert done.returncode == 0, done.stderr
    (line,) = [line for line in done.stderr.splitlines() if "io_uring" in line]
    assert line == (
        "loader.io=io_uring: io_uring cannot be used here: a container or a security policy forbids it (EPERM); reader "
        "threads read by read calls instead"
    )
    summary = json.loads((tmp_path / "out" / "summary.json").read_text())
    assert [rank["by"] for rank in summary["loader_io"]] == ["threads"]
    assert summary["reads"]["mean_bytes"] > 0


@needs_uring
def test_a_run_by_io_uring_has_no_figures_of_read_calls(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from dlio_torch import cli

    monkeypatch.chdir(tmp_path)
    assert cli.main([*RING, "verify=true", "train.warmup_steps=0", "storage.limits=off", "output.dir=out"]) == 0
    summary = json.loads((tmp_path / "out" / "summary.json").read_text())
    window = window_of_machine()
    assert summary["loader_io"] == [{"by": "io_uring", "queue_depth": 32, "why": None, "window_bytes": window}]
    assert summary["reads"]["mean_bytes"] is None
    assert summary["io"]["rchar_bytes"] is None
