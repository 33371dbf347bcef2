"""Each component in which two recordings differ names the option that closes the gap, or says that there is none."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from dataclasses import replace

import numpy as np
import pytest
from io_events import Call, recording, table

from dlio_torch.analysis.remedies import RULES, Remedy, remedies
from dlio_torch.config.fields import lookup
from dlio_torch.iotrace.events.recording import Recording
from dlio_torch.iotrace.fidelity.compare_recordings import compare
from dlio_torch.iotrace.fidelity.measures import LIMITS

SAMPLE = 40960
ORDER = tuple(int(sample) for sample in np.random.default_rng(3).permutation(100))


def reads(order: Iterable[int] = range(100), size: int = SAMPLE, threads: int = 1) -> list[Call]:
    """One file, opened once by each thread; its samples are read in pieces of ``size``."""
    opens = [Call(op="open", offset=-1, bytes=-1, tid=thread) for thread in range(threads)]
    pieces = [
        (sample * SAMPLE + piece * size, place % threads)
        for place, sample in enumerate(order)
        for piece in range(SAMPLE // size)
    ]
    return opens + [
        Call(offset=offset, bytes=size, start=10 + 10 * place, end=15 + 10 * place, tid=thread)
        for place, (offset, thread) in enumerate(pieces)
    ]


def steps(begin: int) -> list[Call]:
    """Reads of 20 ms with compute of 70 ms each, which begins ``begin`` ms after its read."""
    unit = 1_000_000
    return [
        call
        for step in range(20)
        for call in (
            Call(offset=10 * step, start=unit * 100 * step, end=unit * (100 * step + 20)),
            Call("compute", -1, -1, unit * (100 * step + begin), unit * (100 * step + 90), None, layer="app"),
        )
    ]


def with_calls(op: str, count: int) -> list[Call]:
    base = reads()
    last = base[-1].end
    return base + [Call(op=op, offset=-1, bytes=-1, start=last + place, end=last + place + 1) for place in range(count)]


def saves(count: int, size: int = 4096) -> list[Call]:
    base = reads()
    return base + [
        Call("write", place * size, size, 10**6 + 10 * place, 10**6 + 10 * place + 5, "/save/state")
        for place in range(count)
    ]


def made(calls: Iterable[Call]) -> Recording:
    return recording(table(calls), runtime_s=2.0)


def advice(a: Iterable[Call], b: Iterable[Call]) -> dict[str, Remedy]:
    return remedies(compare(made(a), made(b), same_storage=True))


CASES: dict[str, tuple[str, Callable[[], tuple[list[Call], list[Call]]], str | None, tuple[str | None, str | None]]] = {
    "smaller pieces": ("read sizes", lambda: (reads(), reads(size=4096)), "dataset", ("set", "set")),
    "threads": ("readers", lambda: (reads(threads=4), reads()), "loader.num_workers", ("raise", "lower")),
    "shuffled": ("sequential reads", lambda: (reads(), reads(ORDER)), "access.order", ("set", "set")),
    "opens": ("open count", lambda: (with_calls("open", 50), reads()), "loader.max_open_files", ("lower", "raise")),
    "stats": ("meta count", lambda: (with_calls("stat", 50), reads()), None, (None, None)),
    "seeks": ("seek count", lambda: (with_calls("lseek", 50), reads()), None, (None, None)),
    "syncs": ("sync count", lambda: (with_calls("fsync", 50), reads()), "checkpoint.fsync", ("set", "set")),
    "epochs": (
        "read bytes",
        lambda: (reads([*range(100), *range(100)]), reads()),
        "train.epochs",
        ("raise", "lower"),
    ),
    "saves": ("write count", lambda: (saves(100), saves(50)), "checkpoint.every_steps", ("set", "set")),
    "write sizes": ("write sizes", lambda: (saves(100), saves(100, 8192)), "checkpoint.layout", ("set", "set")),
    "hidden reads": ("overlap", lambda: (steps(0), steps(20)), "loader.prefetch_factor", ("raise", "lower")),
    "exposed reads": ("exposed I/O", lambda: (steps(0), steps(20)), "compute.step_s", ("raise", "lower")),
}


@pytest.mark.parametrize("case", CASES)
def test_one_difference_has_one_remedy_in_either_direction(case: str) -> None:
    name, sides, option, directions = CASES[case]
    a, b = sides()
    there, back = advice(a, b)[name], advice(b, a)[name]
    assert (there.option, back.option) == (option, option)
    assert (there.direction, back.direction) == directions
    assert (there.text == back.text) == (option in (None, "checkpoint.layout"))
    assert (option is None) == there.text.startswith("no option")


def test_files_that_the_run_lacks() -> None:
    several = [replace(call, file=f"/data/{number}") for number in range(4) for call in reads(range(50))]
    fewer = [call for call in several if call.file != "/data/3"]
    assert advice(several, fewer)["files"] == Remedy("dataset.num_files", "raise", "raise dataset.num_files")
    assert advice(fewer, several)["files"].direction == "lower"


def test_recordings_that_are_alike_need_none() -> None:
    assert advice(reads(), reads()) == {}


def test_every_component_has_a_rule_whose_options_exist() -> None:
    assert RULES.keys() == LIMITS.keys()
    for rule in RULES.values():
        for values in ((1.0, 2.0), (2.0, 1.0)):
            result = rule(*values)
            assert result.option is None or lookup(result.option.split(".")) is not None, result
            for key in re.findall(r"\b[a-z]+\.[a-z_]+\b(?!>)", result.text):
                assert lookup(key.split(".")) is not None, key
            assert "\n" not in result.text
