"""Same seed and configuration: the same bytes of the data set, and the same order of samples, wherever and however."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import zlib
from collections import Counter
from dataclasses import fields
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from optional_parts import formats
from overrides import overridden
from ranks import clean_environ, run_ranks

from dlio_torch import cli
from dlio_torch.config.resources import shipped
from dlio_torch.config.schema import AccessConfig, Config, LoaderConfig, TrainConfig
from dlio_torch.data.dataset.checksum import CHECKSUMS
from dlio_torch.iotrace.events.event_table import read_events
from dlio_torch.train.order import OrderChecksum, OrderPart, comparable_settings, whole

SMALL = ["scale=tiny", "generate.checksum=true", "generate.fsync=false", "output.progress=false"]
RECIPES = {"larcv3": "cosmic_tagger", "hdf5_volume": "ffn"}  # what the generic recipe has no fields for
SAMPLE = 32  # bytes of the samples whose reads are counted
KINDS = sorted(
    path.stem for path in (shipped() / "conf" / "dataset").glob("*.yaml") if path.stem not in ("auto", "synthetic")
)
GENERATE = """
import json, os, sys
from dlio_torch.cli import main
for kind, recipe in json.loads(sys.argv[1]).items():
    words = [f"recipe={recipe}", f"dataset={kind}", f"dataset.root={os.getcwd()}/{kind}"]
    code = main(["generate", *words, *sys.argv[2:]])
    print(kind, code, flush=True)
"""


def checksums(root: Path) -> str:
    """What was taken of the one data set below a folder."""
    [found] = root.rglob(CHECKSUMS)
    return found.read_text(encoding="utf-8")


def recipe_of(kind: str) -> str:
    return RECIPES.get(kind, "minimal")


@pytest.fixture(scope="module")
def elsewhere(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """All formats, made by another process: other folder, threads, hash seed, time zone and locale."""
    folder = tmp_path_factory.mktemp("a folder with another name")
    environ = clean_environ() | {"PYTHONHASHSEED": "77", "TZ": "Asia/Kathmandu", "LC_ALL": "C"}
    kinds = json.dumps({kind: recipe_of(kind) for kind in KINDS})
    words = [sys.executable, "-c", GENERATE, kinds, *SMALL, "generate.num_workers=3"]
    subprocess.run(words, cwd=folder, env=environ, check=True, capture_output=True, timeout=600)
    return folder


@pytest.mark.parametrize("kind", formats(KINDS))
def test_the_files_of_every_format_are_the_same_bytes(kind: str, elsewhere: Path, tmp_path: Path) -> None:
    if not list((elsewhere / kind).rglob(CHECKSUMS)):
        pytest.skip("what this format needs is not installed")
    words = ["generate", f"recipe={recipe_of(kind)}", f"dataset={kind}", *SMALL, "generate.num_workers=1"]
    assert cli.main([*words, f"dataset.root={tmp_path}"]) == 0
    found = checksums(tmp_path)
    assert len(found.splitlines()) > 1
    assert found == checksums(elsewhere / kind)


def test_ranks_write_the_same_bytes_and_print_the_same_checksum(tmp_path: Path, capsys: pytest.CaptureFixture) -> None:
    words = ["generate", "recipe=minimal", *SMALL, "dataset.num_files=5", "dataset.fields.0.shape=[8]"]
    both = run_ranks("torch", 2, ["-m", "dlio_torch", *words, f"dataset.root={tmp_path}/two"])
    assert [one.exit_code for one in both] == [0, 0]
    capsys.readouterr()
    assert cli.main([*words, f"dataset.root={tmp_path}/one"]) == 0
    said = [line for line in capsys.readouterr().err.splitlines() if "sha256" in line]
    assert said == [line for line in both[0].stderr.splitlines() if "sha256" in line]
    assert checksums(tmp_path / "one") == checksums(tmp_path / "two")


def test_sha256sum_reads_the_checksums_and_another_seed_gives_others(tmp_path: Path) -> None:
    words = ["generate", "recipe=minimal", *SMALL, "dataset.fields.0.shape=[8]"]
    for seed in (1, 2):
        assert cli.main([*words, f"seed={seed}", f"dataset.root={tmp_path}/{seed}"]) == 0
    assert checksums(tmp_path / "1") != checksums(tmp_path / "2")
    [listed] = (tmp_path / "1").rglob(CHECKSUMS)
    check = ["sha256sum", "--check", "--quiet", CHECKSUMS]
    assert subprocess.run(check, cwd=listed.parent, check=False).returncode == 0
    damaged = next(listed.parent.rglob("*.h5"))
    damaged.write_bytes(damaged.read_bytes()[:-1] + b"\1")
    done = subprocess.run(check, cwd=listed.parent, check=False, capture_output=True, text=True)
    assert (done.returncode, damaged.name in done.stdout) == (1, True)


def test_checksums_of_other_files_do_not_stay(tmp_path: Path) -> None:
    words = ["generate", "recipe=minimal", *SMALL, "dataset.fields.0.shape=[8]", f"dataset.root={tmp_path}"]
    assert cli.main(words) == 0
    [listed] = tmp_path.rglob(CHECKSUMS)
    assert cli.main(overridden(*words, "generate.checksum=false")) == 0
    assert listed.exists(), "nothing was written"
    assert cli.main(overridden(*words, "generate.checksum=false", "generate.overwrite=true")) == 0
    assert not listed.exists()


# --- the order --------------------------------------------------------------------------------------------


def parts_of(batches: list[list[Any]], ranks: int) -> list[OrderPart]:
    """Contributions of ranks to the checksum of ``batches``: of each step, one of each rank."""
    parts = []
    for rank in range(ranks):
        order = OrderChecksum(rank, ranks)
        order.add(np.zeros(3, np.int64))  # of an epoch before
        order.end()
        for step in batches:
            order.add(np.ascontiguousarray(step[rank]))
        parts.append(order.end())
    return parts


@pytest.mark.parametrize(
    ("ranks", "sizes"),
    [
        (1, [4]),
        (1, [3] * 7),
        (4, [5] * 9),
        (3, [2] * 16),
        (2, [8] * 257),
        (1, [4, 4, 3]),
        (3, [5, 5, 5, 2]),
        (2, [4] * 9 + [1, 4, 4, 3, 3, 2]),
    ],
)
def test_the_checksum_of_the_order_is_the_crc_of_the_sample_numbers(ranks: int, sizes: list[int]) -> None:
    draw = np.random.default_rng(len(sizes))
    batches = [[draw.integers(0, 1 << 40, size).astype("<i8") for _ in range(ranks)] for size in sizes]
    numbers = b"".join(batch.tobytes() for step in batches for batch in step)
    assert whole([*parts_of(batches, ranks)]) == zlib.crc32(numbers)


def test_what_cannot_be_put_together_has_no_checksum() -> None:
    uneven = parts_of([[np.arange(4), np.arange(4)], [np.arange(3), np.arange(4)]], 2)
    fewer = [parts_of([[np.arange(4)] * 2] * steps, 2)[rank] for rank, steps in enumerate((2, 3))]
    assert whole([*uneven]) is None
    assert whole([*fewer]) is None
    assert whole([fewer[0], None]) is None
    assert whole([OrderChecksum(0, 1).end()]) is None


FILES = ["dataset.num_files=9", "dataset.samples_per_file=5", "train.batch_size=2", "dataset.fields.0.shape=[8]"]
SHOTS = "dataset.fields=[{name: x, dtype: float32, shape: [2], length_mean: 40, length_stdev: 10}]"
LANES = [
    "dataset=npz", "access.pattern=lanes", "access.partition=none", "access.lane_rows=16", "train.steps=6",
    "dataset.num_files=20", "dataset.samples_per_file=1", "train.batch_size=2", SHOTS,
]  # fmt: skip
PATTERNS = {
    "samples": ["dataset=npy", *FILES],
    "stream": ["dataset=npz", "access=stream", "access.interleave=2", "access.shuffle_pool=4", *FILES],
    "lanes": LANES,
}
ENGINES = [("dataloader", 0), ("stateful", 1), ("decoupled", 0), ("dataloader", 2), ("decoupled", 2), ("stateful", 3)]


def order_of(folder: Path, *words: str) -> tuple[list[str], dict[str, Any] | None]:
    """Checksums of the epochs of a small run, and the settings with which they are said to be comparable."""
    common = ["recipe=minimal", "scale=tiny", "train.epochs=2", "train.warmup_steps=0", "compute.step_s=0"]
    output = [f"dataset.root={folder}", f"output.dir={folder}/run-{len(list(folder.iterdir()))}"]
    assert cli.main([*common, *words, *output, "output.progress=false", "trace.spans=false"]) == 0
    found = summary(Path(output[1].partition("=")[2]))
    return [row["crc32"] for row in found["order"]], found["order_comparable"]


@pytest.mark.filterwarnings("ignore:This DataLoader will create")  # more workers than cores
@pytest.mark.parametrize("pattern", PATTERNS)
def test_the_summary_says_with_which_engines_and_workers_the_order_is_the_same(pattern: str, tmp_path: Path) -> None:
    engines = [*ENGINES, ("nodes", 2)] if pattern == "samples" else ENGINES  # nodes take no streams and lanes
    runs = [
        (workers, *order_of(tmp_path, *PATTERNS[pattern], f"loader.engine={engine}", f"loader.num_workers={workers}"))
        for engine, workers in engines
    ]
    threads = ["loader.read_threads=2", "loader.prefetch_batches=2"]
    runs.append((0, *order_of(tmp_path, *PATTERNS[pattern], *threads)))
    for _, order, comparable in runs:
        assert comparable is not None
        assert comparable["engines"] == "any"
        alike = comparable["num_workers"]
        for workers, other, _ in runs:
            assert (other == order) == (alike == "any" or workers in alike), (alike, workers)


@pytest.mark.parametrize(
    ("options", "settings"),
    [
        ({"partition": "batches"}, ("any", "any")),
        ({"partition": "batches", "order": "random_blocks"}, ("any", "any")),
        ({"partition": "batches", "batch_scope": "rank"}, ("any", 3)),
        ({"partition": "slices"}, ("any", 3)),
        ({"partition": "files", "num_workers": 2}, ("any", 3)),
        ({"partition": "none", "engine": "nodes", "num_workers": 4}, ("any", 3)),
        ({"pattern": "stream", "partition": "files", "num_workers": 1}, ([0, 1], 3)),
        ({"pattern": "stream", "partition": "none", "num_workers": 4, "engine": "decoupled"}, ([4], 3)),
        ({"pattern": "lanes", "partition": "none"}, ([0, 1], 3)),
        ({"in_order": False, "num_workers": 2}, None),
        ({"replay": "samples"}, None),
        ({"replay": "batches"}, None),
        ({"replay": "reads"}, ("any", "any")),
    ],
)
def test_comparable_settings(options: dict[str, Any], settings: tuple[Any, Any] | None) -> None:
    groups: tuple[type, ...] = (AccessConfig, LoaderConfig, TrainConfig)
    access, loader, train = (
        {field.name: given[field.name] for field in fields(group) if field.name in given}
        for group, given in zip(groups, [options, options, {"batch_scope": "global"} | options], strict=True)
    )
    config = Config(
        recipe="test", access=AccessConfig(**access), loader=LoaderConfig(**loader), train=TrainConfig(**train)
    )
    found = comparable_settings(config, 3)
    assert (found and (found["num_workers"], found["ranks"])) == settings


def summary(folder: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((folder / "summary.json").read_text(encoding="utf-8"))
    return found


def calls(folder: Path) -> Counter[tuple[object, ...]]:
    """What was asked of the system, without when and by whom."""
    table = read_events(folder / "events").frame
    rows = table[table["layer"] == "posix"]
    return Counter(zip(rows["op"], rows["file"], rows["offset"], rows["bytes"], strict=True))


def of_samples(asked: Counter[tuple[object, ...]]) -> Counter[tuple[object, ...]]:
    """The reads of single samples among them."""
    return Counter({call: count for call, count in asked.items() if call[-1] == SAMPLE})


@pytest.mark.ranks
def test_one_rank_and_four_read_the_same_global_order_and_bytes_whatever_moves_the_batches(tmp_path: Path) -> None:
    words = [
        "recipe=minimal", "scale=tiny", "train.epochs=2", "train.batch_size=8", "train.batch_scope=global",
        "compute.step_s=0", "dataset=indexed_binary", "dataset.fields.0.shape=[8]", f"dataset.root={tmp_path}/data",
        "train.warmup_steps=0", "output.progress=false", "access.order=shuffled",
    ]  # fmt: skip
    workers = ["loader=workers", "loader.prefetch_factor=3"]
    engines = [["loader=main_process"], workers, ["loader=decoupled"], ["loader=threads", "loader.style=pipe"]]
    for number, engine in enumerate(engines):
        assert cli.main([*words, *engine, f"output.dir={tmp_path}/{number}"]) == 0
    traced = [*words, *workers, "trace.posix=true"]
    for name, count in (("one", 1), ("again", 1), ("four", 4)):
        ranks = run_ranks("torch", count, ["-m", "dlio_torch", *traced, f"output.dir={tmp_path}/{name}"])
        assert [rank.exit_code for rank in ranks] == [0] * count, ranks[0].stderr
    found = [summary(tmp_path / name) for name in ("0", "1", "2", "3", "one", "again", "four")]
    assert all(one["order"] == found[0]["order"] for one in found)
    assert {json.dumps(one["order_comparable"]) for one in found} == {
        json.dumps({"engines": "any", "num_workers": "any", "ranks": "any"})
    }
    assert [row["epoch"] for row in found[0]["order"]] == [1, 2]
    assert len({row["crc32"] for row in found[0]["order"]}) == 2, "each epoch has an order of its own"
    assert {(one["train"]["samples"], one["train"]["bytes"]) for one in found} == {(64, 64 * SAMPLE)}
    one, again, four = (calls(tmp_path / name) for name in ("one", "again", "four"))
    assert one == again, "the same twice: not a call more, less, elsewhere or of another size"
    # Each rank has to look at the files by itself; the samples are read by one of them.
    assert of_samples(one) == of_samples(four)
    assert of_samples(one).total() == 64
    assert found[0]["dataset"]["sha256"] is None, "nobody has taken it"
    assert os.listdir(tmp_path / "data")
