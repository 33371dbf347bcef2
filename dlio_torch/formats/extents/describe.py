"""Description of a folder of raw files, from its recorded requests."""

from __future__ import annotations

from pathlib import Path

from dlio_torch.config.schema import FieldConfig
from dlio_torch.formats.core.data_description import DataDescription, StoredArray
from dlio_torch.formats.extents.facts import REQUESTS
from dlio_torch.formats.extents.format import ARRAY
from dlio_torch.formats.extents.reader import check_files
from dlio_torch.formats.extents.requests import Requests
from dlio_torch.formats.extents.requests_file import read_requests
from dlio_torch.units import counted


def describe(path: Path) -> DataDescription:
    """Describes a folder.

    Raises:
        DataError: a file of it is missing or damaged.
    """
    requests = read_requests(path / REQUESTS)
    check_files(path, requests)
    files, calls = len(requests.file_bytes), len(requests.request_call)
    stored = int(requests.file_bytes.sum())
    return DataDescription(
        fields=(_field(requests),),
        samples=requests.num_samples,
        arrays=(StoredArray(ARRAY, "uint8", stored_bytes=stored),),
        notes=(f"{counted(calls, 'recorded request')} on {counted(files, 'file')}",),
        details={"raw_files": files, "requests": calls},
    )


def _field(requests: Requests) -> FieldConfig:
    size = requests.same_bytes
    if size is not None:
        return FieldConfig(ARRAY, "uint8", [size])
    sizes = requests.sample_bytes
    mean, stdev = max(1.0, float(sizes.mean())), float(sizes.std())
    return FieldConfig(ARRAY, "uint8", [], length_mean=round(mean, 3), length_stdev=round(stdev, 3))
