"""Recorded request times of a known pipe give its rate, and the latencies without waits."""

from __future__ import annotations

import numpy as np
import pytest

from dlio_torch.analysis.storage_peak import latencies, seconds_per_byte
from dlio_torch.analysis.storage_requests import StorageRequests

SIZE = 1 << 20
PER_BYTE = 2e-3 / SIZE  # two milliseconds for each request


def recorded(
    readers: int, per_byte: float, *, pause_s: float, jitter_s: float = 1e-3, requests: int = 400
) -> tuple[StorageRequests, np.ndarray]:
    """Requests of some readers to a pipe, one after another with random pauses, and their true latencies."""
    random = np.random.default_rng(3)
    begin = random.random(readers) * 1e-2
    latency = 4e-3 + jitter_s * random.random((readers, requests))
    pauses = pause_s * random.random((readers, requests))
    place, pipe = np.zeros(readers, int), 0.0
    rows = []
    while (place < requests).all():
        # The reader whose request reaches the pipe first.
        arrivals = [begin[reader] + latency[reader, place[reader]] for reader in range(readers)]
        reader = int(np.argmin(arrivals))
        pipe = max(pipe, arrivals[reader]) + per_byte * SIZE
        rows.append((begin[reader], pipe, latency[reader, place[reader]], reader))
        begin[reader] = pipe + pauses[reader, place[reader]]
        place[reader] += 1
    rows.sort(key=lambda row: row[1])
    start, end, true, lane = map(np.array, zip(*rows, strict=True))
    same = np.full(start.size, SIZE)
    one = np.zeros(start.size, np.int64)
    start, end = ((times * 1e9).round().astype(np.int64) for times in (start, end))
    return StorageRequests(start, end, same, one, one, lane), true


@pytest.mark.parametrize(("readers", "pause_s"), [(4, 0.0), (4, 2e-2), (2, 1e-2), (8, 0.0)])
def test_the_rate_of_a_shared_pipe_shows_below_and_at_saturation(readers: int, pause_s: float) -> None:
    requests, true = recorded(readers, PER_BYTE, pause_s=pause_s)
    per_byte = seconds_per_byte(requests)
    assert per_byte == pytest.approx(PER_BYTE, rel=0.05)
    held = (requests.end - requests.start) * 1e-9 - PER_BYTE * SIZE
    assert held.mean() > 1.03 * true.mean()  # the waits that latencies leave out
    # Where nearly every request waited, latencies are known to be short, not how short.
    assert latencies(requests, PER_BYTE).mean() == pytest.approx(true.mean(), rel=0.03 if readers < 8 else 0.1)


def test_few_overlapping_requests_tell_a_rate_only_if_a_pipe_explains_them() -> None:
    few = {"pause_s": 6e-2, "jitter_s": 1e-4, "requests": 50}
    requests, _ = recorded(2, PER_BYTE, **few)
    assert 5 <= np.count_nonzero(requests.start[1:] < requests.end[:-1]) < 20
    assert seconds_per_byte(requests) == pytest.approx(PER_BYTE, rel=0.05)
    assert seconds_per_byte(recorded(2, 0.0, **few)[0]) == 0.0


def test_requests_whose_bytes_were_read_ahead_hide_no_pipe() -> None:
    requests, _ = recorded(4, PER_BYTE, pause_s=0.0)
    early = np.arange(requests.start.size) % 5 == 0
    requests.start[early] = requests.end[early] - round(0.3e9 * PER_BYTE * SIZE)
    assert seconds_per_byte(requests) == pytest.approx(PER_BYTE, rel=0.05)


def test_a_storage_without_a_shared_pipe_gets_almost_none() -> None:
    requests, true = recorded(4, 0.0, pause_s=2e-2)
    per_byte = seconds_per_byte(requests)
    assert per_byte * SIZE < 0.05 * true.mean()
    assert latencies(requests, per_byte).mean() == pytest.approx(true.mean(), rel=0.03)


def test_requests_that_never_overlap_tell_of_no_pipe() -> None:
    requests, true = recorded(1, PER_BYTE, pause_s=1e-2)
    assert seconds_per_byte(requests) == 0.0
    assert latencies(requests, 0.0) == pytest.approx(true + PER_BYTE * SIZE, rel=1e-5)


def test_exact_latencies_stay_and_a_request_that_waited_gets_one_below_its_bound() -> None:
    start = np.array([0, 0, 20, 40]) * 1_000_000
    end = np.array([6, 8, 27, 45]) * 1_000_000
    same = np.full(4, SIZE)
    zero = np.zeros(4, np.int64)
    requests = StorageRequests(start, end, same, zero, zero, zero)
    found = latencies(requests, PER_BYTE)
    assert found[[0, 2, 3]] == pytest.approx([4e-3, 5e-3, 3e-3])
    assert any(found[1] == pytest.approx(value) for value in (3e-3, 4e-3, 5e-3))


def test_calls_without_bytes_keep_their_times() -> None:
    requests, _ = recorded(4, PER_BYTE, pause_s=0.0)
    opens = np.arange(requests.start.size) % 2 == 0
    requests.bytes[opens] = 0
    found = latencies(requests, PER_BYTE)
    assert found[opens] == pytest.approx((requests.end - requests.start)[opens] * 1e-9)


def test_no_requests_are_no_pipe() -> None:
    nothing = np.zeros(0, np.int64)
    requests = StorageRequests(*[nothing] * 6)
    assert seconds_per_byte(requests) == 0.0
    assert latencies(requests, PER_BYTE).size == 0
