"""The map-style Datasets: a batch holds the bytes of the files, and what is wrong with a file is said in one line."""

from __future__ import annotations

import errno
import os
import pickle
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from data_files import RawFormat, config_of, make, make_raw, numbers
from torch.utils.data._utils.pin_memory import pin_memory

from dlio_torch.compute.emulate import Preprocess
from dlio_torch.config.schema import ComputeConfig
from dlio_torch.data.dataset.fetched import Fetched, failed
from dlio_torch.data.dataset.in_memory_dataset import InMemoryDataset
from dlio_torch.data.dataset.manifest import Manifest
from dlio_torch.data.dataset.map_dataset import CatchingDataset, SampleDataset
from dlio_torch.errors import DataError
from dlio_torch.formats.core.batch import Batch, BatchBuffer, batch_bytes, samples_of
from dlio_torch.formats.core.format import Format
from dlio_torch.formats.core.reader import Reader
from dlio_torch.iotrace.events.event_table import read_events
from dlio_torch.iotrace.recorder.spans import NULL, Recorder

ORDERS = {
    "sequential": list(range(21)),
    "backward": list(range(20, -1, -1)),
    "across files": [5, 6, 7, 8, 20, 0, 13, 14],
    "twice": [3, 3, 4, 3],
    "one": [9],
}


class Spy(RawFormat):
    """Notes what is opened, read and closed."""

    def __init__(self) -> None:
        super().__init__()
        self.calls: list[tuple[Any, ...]] = []

    def open(self, path: Path, recorder: Recorder = NULL) -> Reader:
        spy, inner = self, super().open(path, recorder)
        spy.calls.append(("open", path.stem))

        class Spied(Reader):
            num_samples = inner.num_samples

            def read(self, first: int, count: int, buffer: BatchBuffer, position: int) -> None:
                spy.calls.append(("read", path.stem, first, count))
                inner.read(first, count, buffer, position)

            def close(self) -> None:
                spy.calls.append(("close", path.stem))
                inner.close()

        return Spied()


def check_content(fmt: Format, manifest: Manifest, batch: Batch, indices: Sequence[int]) -> None:
    assert batch["index"].tolist() == list(indices)
    for index, sample in samples_of(batch, fmt.specs()):
        for name, want in fmt.expected(manifest.first_sample + index).items():
            np.testing.assert_array_equal(sample[name], want)


def equal(one: Batch, other: Batch) -> bool:
    return one.keys() == other.keys() and all(torch.equal(one[name], other[name]) for name in one)


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> tuple[Format, dict[str, Manifest]]:
    return make(config_of(tmp_path_factory.mktemp("data"), num_files_eval=1, samples_per_file_eval=4))


@pytest.mark.parametrize("unit", ["sample", "block"])
@pytest.mark.parametrize("order", ORDERS)
def test_a_batch_holds_what_was_generated(made: tuple[Format, dict[str, Manifest]], unit: str, order: str) -> None:
    fmt, manifests = made
    dataset = SampleDataset(fmt, manifests["train"], NULL, unit=unit, verify=True)
    assert len(dataset) == 21
    check_content(fmt, manifests["train"], dataset.__getitems__(ORDERS[order]), ORDERS[order])


def test_evaluation_samples_have_content_of_their_own(made: tuple[Format, dict[str, Manifest]]) -> None:
    fmt, manifests = made
    train, evaluation = (SampleDataset(fmt, manifests[split], NULL, verify=True) for split in ("train", "eval"))
    check_content(fmt, manifests["eval"], evaluation.__getitems__(range(4)), range(4))
    assert not torch.equal(train[0]["data"], evaluation[0]["data"])


def test_a_single_index_gives_a_batch_of_one(made: tuple[Format, dict[str, Manifest]]) -> None:
    fmt, manifests = made
    dataset = SampleDataset(fmt, manifests["train"], NULL)
    assert equal(dataset[11], dataset.__getitems__([11]))


@pytest.mark.parametrize(
    ("unit", "reads"),
    [
        ("sample", [(0, 5, 1), (0, 6, 1), (1, 0, 1), (1, 1, 1), (1, 1, 1), (1, 3, 1), (0, 0, 1)]),
        ("block", [(0, 5, 2), (1, 0, 2), (1, 1, 1), (1, 3, 1), (0, 0, 1)]),
    ],
)
def test_the_unit_says_what_one_library_call_reads(tmp_path: Path, unit: str, reads: list[tuple[int, ...]]) -> None:
    _, manifest = make_raw(tmp_path)
    spy = Spy()
    SampleDataset(spy, manifest, NULL, unit=unit).__getitems__([5, 6, 7, 8, 8, 10, 0])
    got = [(int(call[1][-1]), *call[2:]) for call in spy.calls if call[0] == "read"]
    assert got == reads


def test_files_stay_open_up_to_a_limit_and_the_oldest_is_closed(tmp_path: Path) -> None:
    _, manifest = make_raw(tmp_path)
    spy = Spy()
    dataset = SampleDataset(spy, manifest, NULL, max_open_files=2)
    for index in (0, 1, 7, 0, 14, 0, 7):
        dataset.__getitems__([index])
    got = [(call[0], int(call[1][-1])) for call in spy.calls if call[0] != "read"]
    assert got == [("open", 0), ("open", 1), ("close", 1), ("open", 2), ("close", 2), ("open", 1)]


def test_each_thread_has_its_own_open_files(tmp_path: Path) -> None:
    _, manifest = make_raw(tmp_path)
    spy = Spy()
    dataset = SampleDataset(spy, manifest, NULL)
    dataset.__getitems__([0, 1])
    thread = threading.Thread(target=dataset.__getitems__, args=([2, 3],))
    thread.start()
    thread.join()
    dataset.__getitems__([4])
    assert [call[0] for call in spy.calls].count("open") == 2


def test_threads_share_open_files_where_the_format_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    _, manifest = make_raw(tmp_path)
    monkeypatch.setattr(Spy, "shared_by_threads", True)
    spy = Spy()
    dataset = SampleDataset(spy, manifest, NULL, max_open_files=2)
    dataset.open_first()
    assert [call[0] for call in spy.calls] == ["open", "open"]
    threads = [threading.Thread(target=dataset.__getitems__, args=([0, 1, 7],)) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert [call[0] for call in spy.calls].count("open") == 2
    # A file that gives way is left to the last one that reads it.
    dataset.__getitems__([14])
    assert [call[0] for call in spy.calls].count("open") == 3
    assert "close" not in [call[0] for call in spy.calls]


@pytest.mark.parametrize("inherited", [True, False])
def test_a_forked_worker_reads_files_of_its_parent_where_it_inherits_them(
    inherited: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    _, manifest = make_raw(tmp_path)
    spy = Spy()
    dataset = SampleDataset(spy, manifest, NULL, max_open_files=2, inherited=inherited)
    dataset.open_first()
    assert [call[0] for call in spy.calls] == ["open", "open"] * inherited
    for process in (1, 2):
        monkeypatch.setattr(os, "getpid", lambda process=process: process)
        dataset.__getitems__([0, 7])
    assert [call[0] for call in spy.calls].count("open") == (2 if inherited else 4)
    pickle.loads(pickle.dumps(SampleDataset(RawFormat(), manifest, NULL))).__getitems__([0])


def test_a_dataset_travels_to_a_worker_without_its_open_files(made: tuple[Format, dict[str, Manifest]]) -> None:
    fmt, manifests = made
    dataset = SampleDataset(fmt, manifests["train"], NULL)
    here = dataset.__getitems__([3, 9])
    assert equal(pickle.loads(pickle.dumps(dataset)).__getitems__([3, 9]), here)


def test_preprocess_time_is_spent_on_each_sample(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    spent: list[int] = []
    monkeypatch.setattr(Preprocess, "burn", lambda self, samples: spent.append(samples))
    fmt, manifest = make_raw(tmp_path)
    dataset = SampleDataset(fmt, manifest, NULL, preprocess=Preprocess(ComputeConfig(preprocess_s=1.0)))
    dataset.__getitems__([1, 2, 3])
    assert spent == [3]


def test_spans_tell_what_was_done_to_which_file(tmp_path: Path) -> None:
    fmt, manifest = make_raw(tmp_path / "data")
    recorder = Recorder(tmp_path / "events", 0)
    SampleDataset(fmt, manifest, recorder).__getitems__([0, 8])
    recorder.close()
    events = read_events(tmp_path / "events").frame
    assert events["op"].tolist() == ["open", "read", "open", "read", "collate"]
    assert events["file"].tolist()[:4] == [str(manifest.path(file)) for file in (0, 0, 1, 1)]
    assert events["bytes"].tolist()[4] == 64


# --- what is wrong with a file --------------------------------------------------------------------


def damage_missing(path: Path) -> None:
    path.unlink()


def damage_empty(path: Path) -> None:
    path.write_bytes(b"")


def damage_garbage(path: Path) -> None:
    path.write_bytes(b"nothing that a library would open\n" * 100)


def damage_short(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-100])


def damage_other_count(path: Path) -> None:
    path.write_bytes(other_count(path.parent.parent.parent).read_bytes())


def other_count(root: Path) -> Path:
    return make(config_of(root / "other", 1, 5))[1]["train"].path(0)


@pytest.mark.parametrize("damage", [damage_missing, damage_empty, damage_garbage, damage_short, damage_other_count])
def test_a_file_that_is_wrong_is_named_in_one_line(tmp_path: Path, damage: Any) -> None:
    fmt, manifests = make(config_of(tmp_path))
    manifest = manifests["train"]
    damage(manifest.path(1))
    dataset = SampleDataset(fmt, manifest, NULL)
    with pytest.raises(DataError, match=r"train_0000001\.h5") as caught:
        dataset.__getitems__(range(21))
    assert "\n" not in str(caught.value)
    assert "Traceback" not in str(caught.value)
    assert caught.value.exit_code == 3
    check_content(fmt, manifest, dataset.__getitems__([0, 20]), [0, 20])  # the others can still be read


def test_verify_names_the_sample_whose_content_is_another(tmp_path: Path) -> None:
    fmt, manifest = make_raw(tmp_path)
    content = bytearray(manifest.path(1).read_bytes())
    content[3 * 32 + 5] ^= 1
    manifest.path(1).write_bytes(content)
    indices = [0, 9, 10, 11]
    SampleDataset(fmt, manifest, NULL).__getitems__(indices)
    with pytest.raises(
        DataError, match=r"0000001\.raw: sample 3 differs from the generated content in array data: byte 5 of 32"
    ):
        SampleDataset(fmt, manifest, NULL, verify=True).__getitems__(indices)


def test_an_error_of_the_system_names_the_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: Any) -> None:
        raise OSError(errno.EIO, "Input/output error")

    fmt, manifest = make_raw(tmp_path)
    monkeypatch.setattr(os, "pread", fail)
    with pytest.raises(DataError, match=r"0000001\.raw cannot be read: Input/output error"):
        SampleDataset(fmt, manifest, NULL)[8]


def test_an_error_takes_the_place_of_a_batch_and_survives_a_worker(tmp_path: Path) -> None:
    fmt, manifest = make_raw(tmp_path)
    manifest.path(1).unlink()
    dataset = CatchingDataset(SampleDataset(fmt, manifest, NULL))
    assert len(dataset) == 21
    assert numbers([dataset.__getitems__([0, 1])]) == [[0, 1]]
    for found in (dataset.__getitems__([6, 7]), dataset[7]):
        assert found.batch == {}
        sent = pickle.loads(pickle.dumps(found))
        assert str(sent.error) == str(found.error)
        assert isinstance(sent.error, DataError)


def test_pinning_keeps_what_is_fetched(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.Tensor, "pin_memory", lambda tensor, *_: tensor + 1)
    pinned = pin_memory(Fetched({"x": torch.zeros(2)}, 7))
    assert (type(pinned), pinned.number, pinned.batch["x"].tolist()) == (Fetched, 7, [1, 1])
    error = DataError("no such file")
    with pytest.raises(DataError, match="no such file"):
        pin_memory(failed(error)).opened()


def test_a_mistake_of_the_tool_is_not_taken_for_a_damaged_file(tmp_path: Path) -> None:
    fmt, manifest = make_raw(tmp_path)
    with pytest.raises(TypeError):
        CatchingDataset(SampleDataset(fmt, manifest, NULL)).__getitems__([0, None])  # type: ignore[list-item]


# --- in memory ------------------------------------------------------------------------------------


@pytest.mark.parametrize("unit", ["sample", "block"])
@pytest.mark.parametrize("order", ORDERS)
def test_batches_out_of_memory_are_those_of_the_files(
    made: tuple[Format, dict[str, Manifest]], unit: str, order: str
) -> None:
    fmt, manifests = made
    dataset = SampleDataset(fmt, manifests["train"], NULL, unit=unit)
    memory = InMemoryDataset(dataset, range(21))
    assert len(memory) == 21
    assert equal(memory.__getitems__(ORDERS[order]), dataset.__getitems__(ORDERS[order]))
    assert equal(memory[4], dataset[4])
    assert memory.nbytes() == batch_bytes(dataset.__getitems__(range(21)))


def test_only_the_wanted_samples_are_read_once_in_their_order(tmp_path: Path) -> None:
    _, manifest = make_raw(tmp_path)
    spy = Spy()
    memory = InMemoryDataset(SampleDataset(spy, manifest, NULL, unit="block"), [2, 3, 4, 9, 20])
    reads = [(int(call[1][-1]), *call[2:]) for call in spy.calls if call[0] == "read"]
    assert reads == [(0, 2, 3), (1, 2, 1), (2, 6, 1)]
    assert memory.nbytes() == 5 * 32
    check_content(spy, manifest, memory.__getitems__([9, 2]), [9, 2])
    for other in (5, 0, 1000):
        with pytest.raises(KeyError, match="not all in memory"):
            memory.__getitems__([2, other])
    assert len([call for call in spy.calls if call[0] == "read"]) == 3


def test_a_batch_is_a_copy_of_what_is_in_memory(tmp_path: Path) -> None:
    fmt, manifest = make_raw(tmp_path)
    memory = InMemoryDataset(SampleDataset(fmt, manifest, NULL), range(21))
    memory.__getitems__([1, 2])["data"].zero_()
    check_content(fmt, manifest, memory.__getitems__([1, 2]), [1, 2])
