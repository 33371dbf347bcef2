"""Requests from recorded calls, and files with holes."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from dlio_torch.formats.core.recorded_samples import RecordedSamples, replaying_format, write_recorded_samples
from dlio_torch.formats.extents.folder_plan import folder_files, plan_folder
from dlio_torch.formats.extents.raw_files import write_raw_files, written_bytes
from dlio_torch.formats.extents.recorded_calls import requests_of_calls
from dlio_torch.formats.extents.requests import RequestCall, Requests
from dlio_torch.formats.extents.requests_file import read_requests

MIB = 1 << 20


def recorded() -> RecordedSamples:
    rows = [
        ("open", "b", -1, -1),
        ("fstat", "b", -1, -1),
        ("ioctl", "b", -1, -1),
        ("lseek", "b", 10, -1),
        ("read", "b", 10, 5),
        ("preadv2", "a", 0, 7),
        ("mmap", "a", 4096, 8192),
        ("read", "other", 0, 9),
        ("close", "b", -1, -1),
    ]
    calls = pd.DataFrame(rows, columns=["op", "file", "offset", "bytes"])
    return RecordedSamples(
        calls, [np.array([2, 3, 4]), np.array([5, 6, 7, 8])], {"a": 5000, "b": 100}, np.array([0, 1])
    )


def test_each_call_is_the_request_that_it_makes() -> None:
    requests = requests_of_calls(recorded())
    expected = [
        RequestCall.OPEN, RequestCall.FSTAT, RequestCall.SEEK, RequestCall.READ,
        RequestCall.PREADV, RequestCall.MMAP, RequestCall.CLOSE,
    ]  # fmt: skip
    assert requests.request_call.tolist() == expected
    assert requests.request_file.tolist() == [1, 1, 1, 1, 0, 0, 1]
    assert requests.start_first.tolist() == [0, 2]
    assert requests.sample_first.tolist() == [2, 4, 7]
    assert requests.request_bytes.tolist() == [0, 0, 0, 5, 7, 5000 - 4096, 0]  # a map ends with its file


def test_the_archive_can_be_read_again(tmp_path: Path) -> None:
    write_recorded_samples(recorded(), tmp_path / "requests.npz")
    assert read_requests(tmp_path / "requests.npz").num_samples == 2
    assert replaying_format().replay_option == "requests"


@pytest.mark.parametrize("far", [5 * MIB, 700 * MIB])
def test_blocks_that_nothing_reads_are_holes(tmp_path: Path, far: int) -> None:
    rows = [(RequestCall.PREAD, 0, 100), (RequestCall.PREAD, far, 100)]
    call, offset, size = (np.array(column) for column in zip(*rows, strict=True))
    requests = Requests(
        file_bytes=np.array([far + 3 * MIB]),
        sample_first=np.array([0, 1, 2]),
        request_call=call.astype(np.uint8),
        request_file=np.zeros(2, np.int32),
        request_offset=offset.astype(np.int64),
        request_bytes=size.astype(np.int64),
    )
    assert written_bytes(requests) == 2 * MIB
    plan = plan_folder(requests, 0, 2)
    with ThreadPoolExecutor(1) as pool:
        write_raw_files(tmp_path, plan, 1, pool)
    (path,) = folder_files(tmp_path, plan.requests)
    assert path.stat().st_size == far + 3 * MIB
    with path.open("rb") as file:
        parts = []
        for place in (0, far, far - MIB - 100):
            file.seek(place)
            parts.append(file.read(100))
    assert all(any(part) for part in parts[:2])
    assert not any(parts[2])
