"""A comparison tells a faithful emulation from a wrong one, and says what it could not compare."""

from __future__ import annotations

import io
from collections.abc import Callable, Iterable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from io_events import Call, recording, table
from real_data import real_input

from dlio_torch.analysis.run_recording import open_recording
from dlio_torch.errors import ConfigError, DataError
from dlio_torch.iotrace.events.recording import COUNTERS, Recording
from dlio_torch.iotrace.fidelity.compare_recordings import compare
from dlio_torch.iotrace.fidelity.components import Comparison, Component, check
from dlio_torch.report.comparison_text import print_comparison

TRAIN = "*train.h5"


def component(comparison: Comparison, name: str) -> Component:
    return next(one for one in comparison.components if one.name == name)


def named(comparison: Comparison) -> set[str]:
    return {one.name for one in comparison.components}


def not_alike(comparison: Comparison) -> list[str]:
    return [one.name for one in comparison.components if not one.alike]


def left_out(comparison: Comparison, text: str) -> str:
    return next(line for line in comparison.left_out if text in line)


# The real Cosmic Tagger


def real(name: str) -> Recording:
    pytest.importorskip("darshan")
    return open_recording(real_input(name))


@pytest.fixture(scope="module")
def cosmic() -> Recording:
    return real("cosmic_tagger_8ranks.darshan")


def changed(source: Recording, change: Callable[[pd.DataFrame], pd.DataFrame]) -> Recording:
    """The recording with other calls, without the counters that told of the old ones."""
    frame = change(source.events.frame.copy()).sort_values("start_ns", kind="stable", ignore_index=True)
    return replace(source, events=replace(source.events, frame=frame), counters=None)


def train_of_rank(frame: pd.DataFrame, rank: int) -> pd.DataFrame:
    file = frame["file"].astype(object).str.endswith("train.h5")
    return frame[file & (frame["rank"] == rank)]


def halves(source: Recording) -> tuple[Recording, Recording]:
    middle = source.events.frame["start_ns"].median()
    return (
        changed(source, lambda frame: frame[frame["start_ns"] < middle]),
        changed(source, lambda frame: frame[frame["start_ns"] >= middle]),
    )


@pytest.mark.parametrize("rank", [0, 3])
def test_halves_of_one_run_are_alike(cosmic: Recording, rank: int) -> None:
    found = compare(*halves(changed(cosmic, lambda frame: train_of_rank(frame, rank))))
    assert found.headline.startswith("Alike in all ")
    assert {"read count", "read bytes", "read sizes", "read jumps", "consecutive reads", "order"} <= named(found)
    assert component(found, "read durations").alike  # one log, one storage


def test_two_ranks_are_alike(cosmic: Recording) -> None:
    one, other = (changed(cosmic, lambda frame, rank=rank: train_of_rank(frame, rank)) for rank in (1, 6))
    found = compare(one, other)
    assert found.alike, found.headline
    assert all(part.distance < 0.1 for part in found.components if part.name != "read bandwidth")


def one_size(frame: pd.DataFrame) -> pd.DataFrame:
    """The same jumps between transfers of the median size, as an emulation by one size makes them."""
    frame = train_of_rank(frame, 3)
    end = frame["offset"] + frame["bytes"]
    jump = (frame["offset"] - end.shift(fill_value=0)).to_numpy()
    size = int(frame["bytes"].median())
    return frame.assign(offset=np.abs(np.cumsum(jump + size) - size), bytes=size)


def random_offsets(frame: pd.DataFrame) -> pd.DataFrame:
    return frame.assign(offset=np.random.default_rng(1).integers(0, int(frame["offset"].max()), len(frame)))


def ten_times_slower(frame: pd.DataFrame) -> pd.DataFrame:
    return frame.assign(end_ns=frame["start_ns"] + 10 * (frame["end_ns"] - frame["start_ns"]))


def hundred_times_the_bytes(frame: pd.DataFrame) -> pd.DataFrame:
    return frame.assign(offset=100 * frame["offset"], bytes=100 * frame["bytes"])


def another_order(frame: pd.DataFrame) -> pd.DataFrame:
    """The same reads, each burst's sizes drawn at random: distributions stay."""
    frame = train_of_rank(frame, 3)
    size = np.random.default_rng(1).permutation(frame["bytes"].to_numpy())
    end = (frame["offset"] + frame["bytes"]).to_numpy()
    jump = np.append(0, frame["offset"].to_numpy()[1:] - end[:-1])
    return frame.assign(offset=np.abs(np.cumsum(jump + np.append(0, size[:-1]))), bytes=size)


@pytest.mark.parametrize(
    ("change", "reasons", "still_alike"),
    [
        (one_size, ["read sizes", "read bytes"], ["read count", "read durations"]),
        (
            random_offsets,
            ["consecutive reads", "read jumps", "sequential reads"],
            ["read count", "read bytes", "read sizes", "read durations", "operations"],
        ),
        (
            ten_times_slower,
            ["read durations", "read bandwidth"],
            ["read count", "read bytes", "read sizes", "read jumps", "consecutive reads", "order"],
        ),
        (hundred_times_the_bytes, ["read bytes", "read sizes"], ["read count", "consecutive reads", "files"]),
        (another_order, ["order"], ["read count", "read bytes", "read sizes", "read durations"]),
    ],
)
def test_a_wrong_emulation_is_told_and_why(
    cosmic: Recording, change: Callable[[pd.DataFrame], pd.DataFrame], reasons: list[str], still_alike: list[str]
) -> None:
    original = changed(cosmic, lambda frame: train_of_rank(frame, 3))
    found = compare(original, changed(original, change))
    assert not found.alike
    assert found.headline.startswith("Not alike: ")
    assert found.components[0].name in reasons
    assert set(reasons) <= set(not_alike(found))
    assert all(name in found.headline for name in reasons)
    assert not set(still_alike) & set(not_alike(found))


def test_cosine_similarity_is_as_bad_as_it_is_said_to_be(cosmic: Recording) -> None:
    """Of all data files, with the start and the checkpoint: the run's own halves score worst."""
    of_halves, of_random = (
        found.parity for found in (compare(*halves(cosmic)), compare(cosmic, changed(cosmic, random_offsets)))
    )
    assert of_halves is not None
    assert of_random is not None
    assert of_halves.cosine == pytest.approx(0.83, abs=0.01)
    assert of_random.cosine == pytest.approx(0.94, abs=0.005)
    assert {name: of_a for name, of_a, _ in of_random.factors}["files"] == 21


def test_a_short_run_of_one_rank_beside_the_whole_log(cosmic: Recording) -> None:
    short = changed(cosmic, lambda frame: train_of_rank(frame, 3).iloc[5000:10_000])
    short = replace(short, path=Path("/b"))
    found = compare(cosmic, short, files=TRAIN, per_rank=True, scale_free=True)
    assert found.alike, found.headline
    assert found.rank_pairs == 8
    assert found.noise_from == "ranks of A"
    assert {"reads per MiB", "read sizes", "order"} <= named(found)
    assert not {"read count", "read bytes"} & named(found)
    sizes = component(found, "read sizes")
    assert sizes.noise == pytest.approx(0.0007, abs=0.0002)  # what two real ranks differ by, beyond the tolerance
    assert sizes.excess == pytest.approx(sizes.distance - sizes.noise)
    assert sizes.worst_pair is not None
    assert sizes.worst_pair[2] >= sizes.distance
    assert "20 data files of A" in left_out(found, "--files")
    assert "same storage" in left_out(found, "durations")
    # The wrong one is told there, too.
    wrong = compare(cosmic, changed(short, random_offsets), files=TRAIN, per_rank=True, scale_free=True)
    assert wrong.components[0].name == "consecutive reads"


def samples(order: Iterable[int], rank: int = 0) -> list[Call]:
    """Each sample is read in two places of one file of 400 MB, each in pieces."""
    return [
        Call(offset=(base + 50 * sample + piece) * 4096, bytes=4096, start=100 * place + part * 50 + piece, rank=rank)
        for place, sample in enumerate(order)
        for part, base in enumerate((0, 50_000))
        for piece in range(50)
    ]


def test_shuffled_samples_are_told_from_blocks() -> None:
    draw = np.random.default_rng(1)
    blocks, others = ([int(at) + one for at in draw.integers(0, 990, 100) for one in range(4)] for _ in range(2))
    shuffled = draw.permutation(1000)[:300]
    for scale_free in (False, True):
        right = compare(made(samples(blocks)), made(samples(others)), scale_free=scale_free)
        assert component(right, "read stretches").alike
        wrong = compare(made(samples(blocks)), made(samples(shuffled)), scale_free=scale_free)
        assert "read stretches" in not_alike(wrong)
    tiny = [replace(call, offset=call.offset % 2**23) for call in samples(shuffled % 10)]
    small = compare(made(samples(blocks)), made(tiny), scale_free=True)
    assert "too small for jumps" in left_out(small, "read stretches")


def test_what_one_rank_alone_does_is_no_noise() -> None:
    """Rank 0 writes a checkpoint; that it does so in one run only is a difference."""
    own = [replace(call, op="write", file="/data/model.bin", rank=0) for call in program(files=1, reads=200)[1:-1]]
    ranks = [one for rank in (0, 1) for one in program(files=3, rank=rank)]
    with_, without = made([*ranks, *own]), made(ranks)
    assert {"files", "bytes by file"} <= set(not_alike(compare(with_, without, per_rank=True)))
    assert compare(with_, with_, per_rank=True).noise_from is None
    # Other numbers of ranks: rank 0 stands beside rank 0, the others beside the others.
    more = compare(with_, made([*ranks, *program(files=3, rank=2), *own]), per_rank=True)
    assert more.rank_pairs == 3
    assert component(more, "files").distance == 0


def test_counters_only(cosmic: Recording) -> None:
    counters = real("dlio_unet3d_counters.darshan")
    same = compare(counters, counters)
    assert same.alike
    assert {"read count", "open count", "read bytes", "sequential reads", "files"} <= named(same)
    assert "A contains only counters" in left_out(same, "read sizes")
    mixed = compare(cosmic, counters)
    assert not mixed.alike
    assert "A contains only counters" in left_out(mixed, "read sizes")  # the log's own counters are what compares
    assert mixed.parity is None
    with pytest.raises(ConfigError, match="contains only counters"):
        compare(cosmic, counters, per_rank=True)


# Made-up programs


def program(files: int = 4, reads: int = 50, folder: str = "/data", **changes: Any) -> list[Call]:
    """Opens each file, reads it in pieces of 4 KiB and a short one, closes it."""
    calls, now = [], 0
    for number in range(files):
        name = f"{folder}/part_{number}.bin"
        for op, offset, size in (
            ("open", -1, -1),
            *(("read", 4096 * place, 4096) for place in range(reads)),
            ("read", 4096 * reads, 100),
            ("close", -1, -1),
        ):
            calls.append(Call(op=op, offset=offset, bytes=size, start=now, end=now + 5, file=name, **changes))
            now += 10
    return calls


def made(calls: Iterable[Call], **changes: Any) -> Recording:
    return recording(table(calls), **changes)


def test_what_a_source_does_not_see_is_not_a_difference() -> None:
    whole = made(program())
    reads = made([call for call in program() if call.op == "read"], kind="darshan", sees=frozenset({"read", "write"}))
    found = compare(whole, reads)
    assert found.alike
    assert {"read count", "read sizes"} <= named(found)
    assert "not recorded by Darshan's extended tracing (B)" in left_out(found, "open count, close count")


def test_layers_that_one_source_does_not_see() -> None:
    calls = [*program(), Call(op="fwrite", layer="stdio", file="/data/model", bytes=999, offset=0, start=10**6)]
    seen = {"kind": "darshan", "sees": frozenset({"read", "write"})}
    found = compare(made(calls), made([call for call in program() if call.op == "read"], **seen))
    assert found.alike
    assert "1 calls of A" in left_out(found, "stdio")


def test_operations_and_opens() -> None:
    calls = program()
    fewer = [call for call in calls if call.op != "close"]
    found = compare(made(calls), made(fewer))
    assert found.alike  # a process that exits closes its files without a call
    assert left_out(found, "close count").startswith("close count: A 4; B 0; not judged")
    unopened = [call for call in calls if call.op != "open"]
    assert component(compare(made(calls), made(unopened)), "operations").distance == pytest.approx(1 / 52)
    twice = [one for call in calls for one in ([call, call] if call.op == "open" else [call])]
    assert component(compare(made(calls), made(twice)), "open count").distance == 0.5
    assert component(compare(made(calls), made(twice), scale_free=True), "opens per file").distance == 0.5


def test_scale_free_leaves_the_amount_out() -> None:
    small, large = made(program(files=3, folder="/small")), made(program(files=60, folder="/large/set"))
    assert {"read count", "read bytes", "files"} <= set(not_alike(compare(small, large)))
    found = compare(small, large, scale_free=True)
    assert found.alike, found.headline
    assert {"reads per MiB", "calls by class", "bytes by file", "files", "operations"} <= named(found)


def test_threads() -> None:
    """Two threads that read one file side by side are in order each, and not taken together."""
    calls = [
        Call(offset=base + 10 * place, start=20 * place + 10 * tid, end=20 * place + 10 * tid + 1, tid=tid)
        for place in range(40)
        for tid, base in ((0, 0), (1, 10**6))
    ]
    one_thread = [replace(call, tid=0) for call in calls]
    found = compare(made(calls), made(one_thread))
    assert component(found, "readers").distance == 0.5
    assert component(found, "consecutive reads").alike
    assert component(found, "consecutive reads per stream").distance == pytest.approx(0.975, abs=0.01)
    unknown = compare(made(calls), made([replace(call, tid=-1, pid=-1) for call in calls]))
    assert unknown.alike
    assert "threads" in left_out(unknown, "readers")


def test_a_thread_for_each_batch_is_one_reader() -> None:
    """Threads that follow each other are as many readers as read at one time."""

    def read_by(tids: Iterable[int]) -> Recording:
        return made(
            Call(offset=10 * place, start=20 * place, end=20 * place + 5, tid=tid) for place, tid in enumerate(tids)
        )

    one = read_by([0] * 400)
    assert component(compare(one, read_by(place // 4 for place in range(400))), "readers").distance == 0
    # Batches of four samples that two threads read at one time; new ones for each, or always the same.
    new, pool = read_by(place // 4 * 2 + place % 2 for place in range(400)), read_by([0, 1] * 200)
    assert component(compare(new, pool), "readers").distance == 0
    assert component(compare(new, pool), "readers").detail.startswith("A 2 threads per rank")
    assert component(compare(one, new), "readers").distance == 0.5


def passes(count: int, reopened: bool) -> Recording:
    """Reads small files to their ends, in passes: each file is opened once, or for each pass."""
    sizes = [512, *[65536] * 10]
    opened = [f"/data/part_{number}.bin" for number in range(8)] * count
    calls: list[Call] = []
    for place, name in enumerate(opened):
        again = place >= 8 and not reopened
        steps = [] if again else [("open", -1), ("read", sizes[0])]
        offset = sizes[0] if again else 0
        for op, size in [*steps, *(("read", size) for size in sizes[1:]), *([("close", -1)] if reopened else [])]:
            calls.append(Call(op=op, offset=offset if size > 0 else -1, bytes=size, start=10 * len(calls), file=name))
            offset += max(size, 0)
    return recording(table([replace(call, end=call.start + 5) for call in calls]))


@pytest.mark.parametrize("reopened", [False, True])
def test_scale_free_figures_do_not_grow_with_the_steps(reopened: bool) -> None:
    found = compare(passes(2, reopened), passes(20, reopened), scale_free=True)
    steady = ["reads per MiB", "opens per file", "files", "bytes by file", *(["read stretches"] if reopened else [])]
    assert [component(found, name).distance for name in steady] == [0] * len(steady)
    assert found.alike, found.headline
    other = compare(passes(20, reopened), passes(20, not reopened), scale_free=True)
    assert "opens per file" in not_alike(other)


def test_a_small_part_of_a_size_or_a_jump_is_not_another_one() -> None:
    def reads(size: int, header: int) -> Recording:
        """Samples of one file, with a header before each that is not read."""
        return made(
            Call(offset=(header + size) * place + header, bytes=size, start=10 * place, end=10 * place + 5)
            for place in range(200)
        )

    size = 60_000_000
    found = compare(reads(size, 128), reads(size + 256, 384))
    for name in ("read sizes", "read jumps"):
        assert (component(found, name).distance, component(found, name).exact) == (0, 1)
    assert found.alike, found.headline
    text = io.StringIO()
    print_comparison(found, text)
    assert "without the tolerance of 1 % the distance is 1.000" in " ".join(text.getvalue().split())
    assert "read sizes" in not_alike(compare(reads(size, 128), reads(round(1.02 * size), 128)))
    assert "read jumps" in not_alike(compare(reads(4096, 128), reads(4096, 384)))


def test_far_jumps_ahead_are_told_from_far_jumps_back() -> None:
    """Scale-free their length does not count, nor does one percent of it."""
    ahead, back = (
        made(Call(offset=place * 2**32, bytes=4096, start=10 * at, end=10 * at + 5) for at, place in enumerate(order))
        for order in (range(200), range(200, 0, -1))
    )
    assert component(compare(ahead, back, scale_free=True), "read jumps").distance == 1


def test_durations_need_the_same_storage() -> None:
    a = made(program(), path=Path("/a"))
    slow = made([replace(call, end=call.start + 9) for call in program()], path=Path("/b"))
    assert compare(a, slow).alike
    assert "read durations" in not_alike(compare(a, slow, same_storage=True))
    place = {"host": "n1", "mounts": {"data": {"mount_point": "/lus"}}}
    here, there = (replace(one, facts=place) for one in (a, slow))
    assert "read durations" in not_alike(compare(here, there))
    assert "different storage" in left_out(compare(here, there, same_storage=False), "durations")
    untrusted = replace(there, trusted_times=False, kind="strace")
    assert "strace (B)" in left_out(compare(here, untrusted, same_storage=True), "durations")


def test_distances_beyond_the_noise() -> None:
    """Repeats of A that differ as much as A and B do: nothing can be said against B."""
    runs = [made(program(reads=reads)) for reads in (50, 40, 44)]
    plain = compare(runs[0], runs[1])
    assert not component(plain, "read count").alike
    found = compare(runs[0], runs[1], repeats_a=runs[1:])
    count = component(found, "read count")
    assert found.noise_from == "3 runs of A"
    assert count.noise == pytest.approx(np.median([1 - 41 / 51, 1 - 45 / 51, 1 - 41 / 45]))
    assert count.excess == pytest.approx(count.distance - count.noise)
    other = compare(runs[0], runs[1], repeats_b=[runs[0]])
    assert component(other, "read count").excess == 0
    assert other.noise_from == "2 runs of B"


def test_overlap_and_exposed_io() -> None:
    def trained(hidden: bool, unit: int = 1_000_000) -> Recording:
        calls = [
            one
            for step in range(20)
            for one in (
                Call(offset=10 * step, start=unit * 100 * step, end=unit * (100 * step + 20)),
                Call(op="compute", layer="app", file=None, offset=-1, bytes=-1,
                     start=unit * (100 * step + (0 if hidden else 20)), end=unit * (100 * step + 90)),
            )
        ]  # fmt: skip
        return made(calls, runtime_s=2000e-9 * unit)

    assert compare(trained(True), trained(True)).alike
    found = compare(trained(True), trained(False))
    assert component(found, "overlap").distance == 1
    assert "exposed I/O" in not_alike(found)
    assert found.headline.startswith("Not alike: overlap 1 ")
    short = compare(trained(True), trained(False, 1000))
    assert "the measured time is too short (A 1.99 s; B 1.97 ms" in left_out(short, "overlap, exposed I/O")
    assert "A contains no record of compute" in left_out(compare(made(program()), made(program())), "overlap")


def test_few_calls_prove_nothing() -> None:
    one, other = ([Call(op="write", bytes=size, offset=0) for size in sizes] for sizes in ([10, 30], [11, 29]))
    found = compare(made(one), made(other))
    assert "write sizes" not in named(found)
    assert "too few calls for a comparison (A 2; B 2)" in left_out(found, "write sizes")


@pytest.mark.parametrize(
    ("limits", "missed"),
    [
        (["worst:0.3"], ["read bytes: 0.5 is above 0.3 (A 1000 B; B 1.95 KiB), and 1 more component"]),
        (["worst:0.7"], ["read sizes: 1 is above 0.7 (A "]),
        (["read count:0", "files:0.1"], []),
        (["read bytes:0.1", "read sizes:1"], ["read bytes: 0.5 is above 0.1 (A "]),
        (["overlap:0.1"], ["overlap: not measured (A contains no record of compute)"]),
        (["write sizes:0.1"], ["write sizes: not measured (neither side has data for it)"]),
        (["read bandwidth:0.1"], ["read bandwidth: not measured (both sides used different storage)"]),
    ],
)
def test_limits_of_the_user(limits: list[str], missed: list[str]) -> None:
    reads = [Call(offset=10 * place, bytes=10, start=place) for place in range(100)]
    larger = [replace(call, offset=20 * place, bytes=20) for place, call in enumerate(reads)]
    found = check(compare(made(reads), made(larger), same_storage=False), limits)
    assert len(found) == len(missed)
    assert all(line.startswith(start) for line, start in zip(found, missed, strict=True))


@pytest.mark.parametrize(
    ("limit", "says"),
    [
        ("worse:0.1", "there is no component 'worse' in a comparison; write one of worst, open count"),
        ("worst:much", "the limit 'much' is not a number"),
        ("worst:-1", "the limit '-1' is not a number"),
        ("worst:nan", "the limit 'nan' is not a number"),
        ("read sizes", "the value does not have the form METRIC:LIMIT"),
    ],
)
def test_limits_that_cannot_be_used(limit: str, says: str) -> None:
    comparison = compare(made(program()), made(program()))
    with pytest.raises(ConfigError) as raised:
        check(comparison, [limit])
    assert str(raised.value).startswith(f"--fail {limit} (command line): ")
    assert says in str(raised.value)


def test_nothing_to_compare() -> None:
    empty = replace(made([]), path=Path("/runs/1"), notes=("it was recorded without trace.posix",))
    with pytest.raises(
        DataError, match=r"^/runs/1: the recording contains no read .*; it was recorded without trace\.posix$"
    ):
        compare(made(program()), empty)
    spans = made([Call(op="read", layer="app")], path=Path("/runs/3"), kind="run", sees=frozenset())
    with pytest.raises(DataError, match=r"^/runs/3: .*; repeat the run with trace\.posix=true$"):
        compare(spans, made(program()))
    library = made([Call(file="/usr/lib/x.so")], path=Path("/runs/2"))
    with pytest.raises(DataError, match="/runs/2"):
        compare(library, made(program()))


def test_counters_beside_events() -> None:
    calls = program(files=2)
    whole = made(calls)
    rows = [
        {**dict.fromkeys(COUNTERS, 0), "rank": 0, "layer": "posix", "file": f"/data/part_{number}.bin", "opens": 1,
         "reads": 51, "bytes_read": 4096 * 50 + 100, "sequential_reads": 50, "consecutive_reads": 50}
        for number in range(2)
    ]  # fmt: skip
    counted = replace(made([]), kind="darshan", sees=frozenset(), counters=pd.DataFrame(rows), path=Path("/log"))
    found = compare(whole, counted)
    assert found.alike, found.headline
    assert {"open count", "read count", "read bytes", "sequential reads", "bytes by file"} <= named(found)
    # A log with both: counts of classes that it has no events of come from its counters.
    log = replace(counted, events=made([call for call in calls if call.op == "read"]).events,
                  sees=frozenset({"read", "write"}))  # fmt: skip
    assert component(compare(whole, log), "open count").distance == 0
