"""Sequential and consecutive shares and jumps, against a loop over the calls."""

from __future__ import annotations

from collections import defaultdict

import numpy as np
import pytest
from hypothesis import strategies as st
from io_events import Call, calls, examples, table

from dlio_torch.iotrace.events.call_names import class_of
from dlio_torch.iotrace.figures import access_order


def followed(made: list[Call], per: str) -> tuple[dict[tuple, list[int]], list[int]]:
    """Per group (accesses, sequential, consecutive); and the jumps of all groups."""
    groups = defaultdict(list)
    for call in sorted(made, key=lambda call: call.start):  # stable
        if class_of(call.op) in ("read", "write") and call.offset >= 0 and call.bytes >= 0 and call.file:
            process = (call.rank, call.pid, call.tid) if per == "stream" else (call.rank, call.pid)
            groups[(*process, call.file, class_of(call.op))].append(call)
    counts, jumps = {}, []
    for key, accesses in groups.items():
        last_byte, sequential, consecutive = 0, 0, 0  # as Darshan's runtime keeps it
        for number, call in enumerate(accesses):
            sequential += call.offset > last_byte
            consecutive += call.offset == last_byte + 1
            if number:
                jumps.append(call.offset - last_byte - 1)
            last_byte = call.offset + call.bytes - 1
        counts[key] = [len(accesses), sequential, consecutive]
    return counts, jumps


@examples(calls(), st.sampled_from(["process", "stream"]))
def test_following(made: list[Call], per: access_order.Per) -> None:
    frame = table(made)
    counts, jumps = followed(made, per)
    found = access_order.follow(frame, per)
    keys = ["rank", "pid", "tid", "file", "class"] if per == "stream" else ["rank", "pid", "file", "class"]
    assert list(found) == ["layer", *keys, "accesses", "sequential", "consecutive"]
    assert {tuple(row[:-3]): row[-3:] for row in found.drop(columns="layer").to_numpy().tolist()} == counts
    assert sorted(access_order.jumps(frame, per).tolist()) == sorted(jumps)
    shares = access_order.shares(frame, per)
    for name, classes in (("read", ["read"]), ("write", ["write"]), ("all", ["read", "write"])):
        total = np.array([values for key, values in counts.items() if key[-1] in classes]).reshape(-1, 3).sum(axis=0)
        expected = (total[1] / total[0], total[2] / total[0]) if total[0] else (None, None)
        assert (shares[name].sequential, shares[name].consecutive) == expected
        assert shares[name].accesses == total[0]


def test_jumps_are_in_order_of_time() -> None:
    frame = table(Call(offset=offset, start=start) for offset, start in ((90, 3), (0, 1), (5, 2)))
    assert access_order.jumps(frame).tolist() == [-5, 75]


def test_threads_break_the_order_of_their_process() -> None:
    made = [Call(offset=1000 * tid + 10 * step, start=2 * step + tid, tid=tid) for step in range(50) for tid in (0, 1)]
    assert access_order.shares(table(made), "process")["read"].consecutive == 0
    assert access_order.shares(table(made), "stream")["read"].consecutive == pytest.approx(98 / 100)


def test_layers_are_followed_apart() -> None:
    made = [Call(offset=10 * step, start=step, layer=("posix", "stdio")[step % 2]) for step in range(4)]
    assert access_order.follow(table(made))["accesses"].tolist() == [2, 2]


def test_what_is_followed_must_be_named() -> None:
    with pytest.raises(ValueError, match="per='thread' is not a way to group accesses; it must be process or stream"):
        access_order.follow(table([]), "thread")  # type: ignore[arg-type]
