"""Archives of recorded requests: what was written is read, and each kind of damage is one line."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from io_events import examples
from recorded_requests import recordings, records

from dlio_torch.errors import DataError
from dlio_torch.formats.extents.requests import DTYPES, RequestCall, Requests
from dlio_torch.formats.extents.requests_file import kept_requests, read_requests, write_requests

RECORDS = records(5, 100, header=50)


@pytest.mark.parametrize("compressed", [True, False])
def test_an_archive_gives_what_was_written(compressed: bool, tmp_path_factory: pytest.TempPathFactory) -> None:
    path = tmp_path_factory.mktemp("archives") / "requests.npz"

    @examples(recordings(), count=10)
    def check(requests: Requests) -> None:
        write_requests(path, requests, compressed=compressed)
        again = read_requests(path)
        assert again.digest == requests.digest
        for name, dtype in DTYPES.items():
            array = getattr(again, name)
            assert array.dtype == dtype
            assert np.array_equal(array, getattr(requests, name)), name

    check()


def test_the_same_requests_are_the_same_bytes(tmp_path: Path) -> None:
    for name in ("a", "b"):
        write_requests(tmp_path / name, RECORDS)
    assert (tmp_path / "a").read_bytes() == (tmp_path / "b").read_bytes()
    assert replace(RECORDS, file_bytes=RECORDS.file_bytes + 1).digest != RECORDS.digest


def test_groups_that_are_left_out_are_empty(tmp_path: Path) -> None:
    arrays = {name: getattr(RECORDS, name) for name in DTYPES if name not in ("start_first", "file_first")}
    np.savez(tmp_path / "requests.npz", version=np.array(1), **arrays)
    requests = read_requests(tmp_path / "requests.npz")
    assert requests.start_first.tolist() == [0, 0]
    assert requests.file_first.tolist() == [0, 0]
    assert requests.sample_bytes.tolist() == [100] * 5


def changed(requests: Requests, name: str, position: int, value: int) -> Requests:
    array = getattr(requests, name).copy()
    array[position] = value
    return replace(requests, **{name: array})


WRONG: dict[str, tuple[Requests, str]] = {
    "type": (replace(RECORDS, request_bytes=RECORDS.request_bytes.astype(np.int32)), "request_bytes is int32"),
    "axes": (replace(RECORDS, file_bytes=RECORDS.file_bytes[:, None]), "file_bytes is int64[1, 1]"),
    "length": (replace(RECORDS, request_offset=RECORDS.request_offset[1:]), "request_offset has 11 elements"),
    "no samples": (replace(RECORDS, sample_first=RECORDS.sample_first[:1]), "there are no samples"),
    "falling": (changed(RECORDS, "sample_first", 2, 99), "sample_first does not rise"),
    "too many": (changed(RECORDS, "sample_first", -1, 13), "sample_first does not rise"),
    "start": (replace(RECORDS, start_first=RECORDS.start_first[:1]), "start_first has 1 elements"),
    "opening": (replace(RECORDS, file_first=np.zeros(3, np.int64)), "file_first has 3 elements"),
    "file": (changed(RECORDS, "request_file", 3, 1), "request 3 is on a file"),
    "code": (changed(RECORDS, "request_call", 3, 12), "request 3 has a call of an unknown code"),
    "past the end": (changed(RECORDS, "request_bytes", 11, 101), "request 11 reaches past the end"),
    "huge": (changed(RECORDS, "request_offset", 11, 2**63 - 1), "request 11 reaches past the end"),
    "negative": (changed(RECORDS, "request_offset", 2, -1), "request 2 has a negative offset"),
    "map": (changed(RECORDS, "request_call", 3, RequestCall.MMAP), "request 3 maps no bytes, or not from"),
    "size": (changed(RECORDS, "file_bytes", 0, -1), "file 0 has fewer than 0 bytes"),
}


@pytest.mark.parametrize("case", WRONG)
def test_arrays_that_do_not_fit_are_refused(case: str, tmp_path: Path) -> None:
    requests, words = WRONG[case]
    path = tmp_path / "requests.npz"
    with pytest.raises(DataError, match=re.escape(words)) as refused:
        write_requests(path, requests)
    assert "\n" not in str(refused.value)
    assert not path.exists()
    arrays: dict[str, Any] = {name: getattr(requests, name) for name in DTYPES}
    np.savez(path, version=np.array(1), **arrays)
    with pytest.raises(DataError, match=re.escape(words)):
        read_requests(path)


def test_what_is_no_archive_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "requests.npz"
    arrays: dict[str, Any] = {name: getattr(RECORDS, name) for name in DTYPES}

    def refused(words: str) -> None:
        with pytest.raises(DataError, match=words) as error:
            read_requests(path)
        assert "\n" not in str(error.value)
        assert str(path) in str(error.value)

    refused("does not exist")
    path.write_bytes(b"no archive")
    refused("it is not a zip file")
    np.savez(path, **arrays)
    refused("version")
    np.savez(path, version=np.array(2), **arrays)
    refused("its version is 2")
    np.savez(path, version=np.array(1), **{**arrays, "request_call": np.array([{}])})
    refused("allow_pickle=False")
    del arrays["request_file"]
    np.savez(path, version=np.array(1), **arrays)
    refused("request_file")
    write_requests(path, RECORDS)
    path.write_bytes(path.read_bytes()[:-40])
    refused("no archive of recorded requests")


def test_a_changed_archive_is_read_again(tmp_path: Path) -> None:
    path = tmp_path / "requests.npz"
    write_requests(path, RECORDS)
    assert kept_requests(str(path)) is kept_requests(str(path))
    write_requests(path, records(6, 100))
    assert kept_requests(str(path)).num_samples == 6
