"""Options of recorded requests, folders that are there already, and what is refused in one line."""

from __future__ import annotations

import pickle
from contextlib import closing
from pathlib import Path

import pytest
from recorded_requests import PREAD, records, requests_of, scattered, temporary_archive

from dlio_torch.config.schema import Config, DatasetConfig, FieldConfig
from dlio_torch.errors import ConfigError, DataError
from dlio_torch.formats.core.format import Format
from dlio_torch.formats.core.inspection import inspect_path
from dlio_torch.formats.core.recognition import recognised_folder
from dlio_torch.formats.core.registry import create, facts
from dlio_torch.formats.extents.options import ExtentsConfig
from dlio_torch.formats.extents.requests import RequestCall, Requests
from dlio_torch.formats.extents.requests_file import write_requests
from dlio_torch.formats.testing.contract import read, write


def recorded_format(requests: Requests, samples: int = 7) -> Format:
    options = ExtentsConfig(temporary_archive(requests))
    return create(DatasetConfig(format="extents", samples_per_file=samples, extents=options), 1)


def existing_format(path: Path, *fields: FieldConfig) -> Format:
    return create(DatasetConfig(format="extents", path=str(path), fields=list(fields)), 1)


def test_data_cannot_be_generated_without_requests(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"dataset\.extents\.requests is empty"):
        create(DatasetConfig(format="extents"), 1)
    missing = tmp_path / "requests.npz"
    with pytest.raises(ConfigError, match=rf"^dataset\.extents\.requests={missing}: {missing} does not exist") as error:
        create(DatasetConfig(format="extents", extents=ExtentsConfig(str(missing))), 1)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize("field", [FieldConfig("data", "float32", [64]), FieldConfig("data", "uint8", [8, 8])])
def test_a_sample_of_an_existing_folder_is_one_row_of_bytes(field: FieldConfig, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"one array of bytes"):
        existing_format(tmp_path, field)


def test_what_inspect_says_reads_an_existing_folder(tmp_path: Path) -> None:
    for requests, shape in ((records(7, 600), [600]), (scattered(), [])):
        fmt = recorded_format(requests)
        path = write(fmt, tmp_path / f"{len(shape)}.extents", 0, 7)
        shown = inspect_path(str(path))
        assert (shown.format, shown.description.samples) == ("extents", 7)
        (field,) = shown.description.fields
        assert (field.dtype, field.shape, field.length_mean > 0) == ("uint8", shape, not shape)
        existing = existing_format(path, field)
        assert existing.specs() == fmt.specs()
        assert existing.sample_bytes() == pytest.approx(fmt.sample_bytes(), rel=0.01)
        with closing(existing.open(path)) as reader, closing(fmt.open(path)) as other:
            batch, again = read(existing, reader, [3, 5]), read(fmt, other, [3, 5])
            assert batch["data"].tolist() == again["data"].tolist()


def test_samples_of_another_size_are_refused(tmp_path: Path) -> None:
    path = write(recorded_format(scattered()), tmp_path / "a.extents", 0, 7)
    fmt = existing_format(path, FieldConfig("data", "uint8", [64]))
    for attempt in (fmt.inspect, fmt.open, fmt.layout):
        with pytest.raises(DataError, match="sample 1 has 215 bytes, but the array data has 64") as error:
            attempt(path)
        assert "\n" not in str(error.value)


def test_a_folder_of_a_fitted_recording_is_no_data(tmp_path: Path) -> None:
    write_requests(tmp_path / "requests.npz", records(3, 64))
    (tmp_path / "recipe.yaml").write_text("{}")
    assert recognised_folder(tmp_path) is None
    (tmp_path / "files").mkdir()
    kind = recognised_folder(tmp_path)
    assert kind is not None
    assert kind.name == "extents"


def test_a_file_of_another_size_is_named(tmp_path: Path) -> None:
    fmt = recorded_format(records(7, 600))
    path = write(fmt, tmp_path / "a.extents", 0, 7)
    file = path / "files" / "000" / "000000"
    file.write_bytes(file.read_bytes() + b"more")
    for attempt in (fmt.inspect, lambda folder: inspect_path(str(folder))):
        with pytest.raises(DataError, match=r"files/000/000000 has 4204 bytes, but requests.npz states 4200"):
            attempt(path)


def test_samples_of_several_files_have_no_layout(tmp_path: Path) -> None:
    requests = requests_of([100, 100], [[(PREAD, 0, 0, 10)], [(PREAD, 0, 10, 10), (PREAD, 1, 10, 10)]])
    fmt = recorded_format(requests, 2)
    path = write(fmt, tmp_path / "a.extents", 0, 2)
    with pytest.raises(DataError, match=r"sample 1 reads from several files.*loader\.engine=dataloader"):
        fmt.layout(path)
    assert fmt.files_per_sample() == 2


def test_samples_that_share_bytes_are_counted_once_on_disk() -> None:
    fmt = recorded_format(requests_of([60_000], [[(PREAD, 0, 0, 60_000)]] * 7))
    assert fmt.sharing() == 7
    assert fmt.sample_bytes() == 60_000
    assert 60_000 / 7 < fmt.stored_bytes() < 70_000 / 7


def test_workers_get_no_plan_of_the_files() -> None:
    fmt = recorded_format(records(7, 600))
    before = len(pickle.dumps(fmt))
    assert fmt.stored_bytes() > 600
    assert len(pickle.dumps(fmt)) == before


def test_a_run_says_whether_files_are_mapped() -> None:
    mapped = requests_of([9000], [[(RequestCall.TOUCH, 0, 0, 9000)]])
    for requests, is_mapped in ((mapped, True), (records(3, 64), False)):
        assert facts("extents").maps_files(Config(dataset=recorded_format(requests).config)) == is_mapped
