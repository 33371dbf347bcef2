"""Files that the library wrote from tensors: described, read bit by bit, by its own system calls."""

from __future__ import annotations

import json
import shutil
import struct
import sys
from collections.abc import Sequence
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from calls_by_file import below, calls_by_file
from hypothesis import given
from hypothesis import strategies as st
from straced import needs_strace

from dlio_torch.config.compose import compose
from dlio_torch.config.schema import DatasetConfig, FieldConfig
from dlio_torch.errors import ConfigError, DataError, DlioError, MissingPackageError
from dlio_torch.formats.core.batch import Batch, BatchBuffer
from dlio_torch.formats.core.inspection import answered, inspect_path
from dlio_torch.formats.core.registry import create
from dlio_torch.formats.safetensors.describe import describe
from dlio_torch.formats.safetensors.options import SafetensorsConfig
from dlio_torch.formats.safetensors.tensor_header import read_header
from dlio_torch.formats.testing.contract import refusal

pytest.importorskip("safetensors", reason="safetensors is not installed")
from safetensors.torch import save_file

NARROW = {torch.bfloat16: torch.int16, torch.float8_e4m3fn: torch.uint8, torch.float8_e5m2: torch.uint8}


def saved(path: Path, **tensors: torch.Tensor) -> Path:
    save_file(tensors, path)
    return path


def read_all(path: Path, fields: Sequence[FieldConfig], count: int, **options: Any) -> Batch:
    """All samples of a file, all but the last by one call."""
    fmt = create(DatasetConfig(format="safetensors", fields=list(fields), safetensors=SafetensorsConfig(**options)), 1)
    with closing(fmt.open(path)) as reader:
        assert reader.num_samples == fmt.inspect(path).num_samples == count
        buffer = BatchBuffer(fmt.specs(), range(count))
        if count > 1:
            reader.read(0, count - 1, buffer, 0)
        reader.read(count - 1, 1, buffer, count - 1)
    return buffer.finish()


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float8_e4m3fn, torch.float8_e5m2, torch.float16])
@pytest.mark.parametrize("backend", ["mmap", "pread"])
def test_types_that_numpy_lacks_keep_their_bytes(dtype: torch.dtype, backend: str, tmp_path: Path) -> None:
    tensor = torch.randn(5, 3, generator=torch.Generator().manual_seed(1)).to(dtype)
    path = saved(tmp_path / "a.safetensors", emb=tensor, row=tensor[:, 0].contiguous())
    description = describe(path)
    batch = read_all(path, description.fields, 5, backend=backend)
    same = NARROW.get(dtype, dtype)
    assert torch.equal(batch["emb"].view(same), tensor.view(same))
    assert torch.equal(batch["row"].view(same), tensor[:, 0].contiguous().view(same))
    assert any("NumPy has no type" in note for note in description.notes) == (dtype in NARROW)
    if dtype in NARROW:
        assert "framework=pt" in refusal(lambda: read_all(path, description.fields, 5, framework="np"))


def test_rows_or_one_sample_is_asked(tmp_path: Path) -> None:
    path = saved(tmp_path / "a.safetensors", x=torch.ones(6, 4), y=torch.arange(6))
    inspection = inspect_path(str(path))
    (question,) = inspection.description.questions
    assert question.setting == "dataset.safetensors.samples=rows"
    assert not answered(inspection, {"dataset.safetensors.samples": "rows"}).description.questions
    assert {field.name: field.shape for field in inspection.description.fields} == {"x": [4], "y": []}
    # The line for one sample a file can be pasted.
    fields = question.problem.partition("'")[2].rpartition("'")[0]
    config = compose([f"dataset.path={path}", "dataset.safetensors.samples=file", fields]).config
    assert {field.name: field.shape for field in config.dataset.fields} == {"x": [6, 4], "y": [6]}


def test_a_folder_of_files_of_one_sample(tmp_path: Path) -> None:
    for number in range(4):
        saved(tmp_path / f"{number}.safetensors", latent=torch.full((2, 3), number), id=torch.tensor(number))
    inspection = inspect_path(str(tmp_path))
    assert (inspection.files, inspection.description.options, inspection.description.questions) == (
        4,
        {"samples": "file"},
        (),
    )
    for framework in ("pt", "np"):
        fields = inspection.description.fields
        batch = read_all(tmp_path / "3.safetensors", fields, 1, samples="file", framework=framework)
        assert (batch["latent"].tolist(), batch["id"].tolist()) == ([[[3] * 3] * 2], [3])


def test_what_cannot_be_read_is_named(tmp_path: Path) -> None:
    path = saved(
        tmp_path / "a.safetensors", z=torch.ones(3, dtype=torch.complex64), none=torch.ones(0, 2), x=torch.ones(3)
    )
    description = describe(path)
    assert {array.name: bool(array.note) for array in description.arrays} == {"z": True, "none": True, "x": False}
    assert [field.name for field in description.fields] == ["x"]
    assert "it has none, x, z" in refusal(lambda: read_all(path, [FieldConfig("y")], 1))
    assert "expect" in refusal(lambda: read_all(path, [FieldConfig("x", "float32", [2])], 3))


def test_variable_lengths_need_one_sample_a_file() -> None:
    fields = "dataset.fields=[{name: x, shape: [2], length_mean: 5}]"
    with pytest.raises(ConfigError, match="one sample per file"):
        compose(["recipe=minimal", "dataset=safetensors", fields])
    with pytest.raises(ConfigError, match="a file is one sample"):
        compose(
            ["recipe=minimal", "dataset=safetensors", "dataset.safetensors.samples=file", "dataset.samples_per_file=9"]
        )


@given(st.binary(max_size=200), st.integers(0, 300))
def test_any_header_is_read_or_refused_in_one_line(
    tmp_path_factory: pytest.TempPathFactory, text: bytes, size: int
) -> None:
    path = tmp_path_factory.getbasetemp() / "any.safetensors"
    path.write_bytes(struct.pack("<Q", size) + text)
    with pytest.raises(DataError, match=r"any\.safetensors"):
        read_header(path)


@pytest.mark.parametrize(
    "entry",
    [
        {"dtype": "F32", "shape": [2], "data_offsets": [0, 9]},
        {"dtype": "F32", "shape": [2], "data_offsets": [0, 80]},
        {"dtype": "F32", "shape": [-2], "data_offsets": [0, 8]},
        {"dtype": "F32", "shape": 2, "data_offsets": [0, 8]},
        {"shape": [2]},
        3,
    ],
)
def test_headers_that_contradict_the_file(entry: Any, tmp_path: Path) -> None:
    text = json.dumps({"x": entry}).encode()
    path = tmp_path / "a.safetensors"
    path.write_bytes(struct.pack("<Q", len(text)) + text + bytes(8))
    for attempt in (lambda: describe(path), lambda: read_all(path, [FieldConfig("x", "float32", [])], 2)):
        assert str(path) in refusal(attempt)


PROGRAM = """
import sys
from pathlib import Path
from safetensors import safe_open
import safetensors.numpy, safetensors.torch
from dlio_torch.config.schema import DatasetConfig, FieldConfig
from dlio_torch.formats.core.batch import BatchBuffer
from dlio_torch.formats.core.registry import create
from dlio_torch.formats.safetensors.options import SafetensorsConfig

def ours(fields, path, runs, **options):
    fmt = create(DatasetConfig(format="safetensors", fields=fields, safetensors=SafetensorsConfig(**options)), 1)
    reader = fmt.open(Path(path))
    for first, count in runs:
        reader.read(first, count, BatchBuffer(fmt.specs(), range(count)), 0)
    reader.close()

rows = [FieldConfig("x", "float32", [900]), FieldConfig("y", "int64", [])]
whole = [FieldConfig("x", "float32", [7, 900]), FieldConfig("y", "int64", [7])]
for framework in ("pt", "np"):
    for backend in ("mmap", "pread"):
        case = f"{framework}_{backend}"
        with safe_open(f"theirs_{case}/rows", framework=framework, backend=backend) as file:
            x, y = file.get_slice("x"), file.get_slice("y")
            x[3:4], y[3:4], x[1:5], y[1:5]
        ours(rows, f"ours_{case}/rows", [(3, 1), (1, 4)], framework=framework, backend=backend)
        for i in (2, 6):
            with safe_open(f"theirs_{case}/again", framework=framework, backend=backend) as file:
                file.get_slice("x")[i : i + 1], file.get_slice("y")[i : i + 1]
        ours(rows, f"ours_{case}/again", [(2, 1), (6, 1)], framework=framework, backend=backend, reopen="file")
        library = {"pt": safetensors.torch, "np": safetensors.numpy}[framework]
        library.load_file(f"theirs_{case}/whole", backend=backend)
        ours(whole, f"ours_{case}/whole", [(0, 1)], framework=framework, backend=backend, samples="file")
"""


@needs_strace
def test_system_calls_are_those_of_safetensors(tmp_path: Path) -> None:
    folder = (tmp_path / "files").resolve()
    cases = [f"{framework}_{backend}" for framework in ("pt", "np") for backend in ("mmap", "pread")]
    path = saved(tmp_path / "a.safetensors", x=torch.randn(7, 900), y=torch.arange(7))
    for place in [folder / f"{who}_{case}" for who in ("ours", "theirs") for case in cases]:
        place.mkdir(parents=True)
        for name in ("rows", "again", "whole"):
            shutil.copy(path, place / name)
    calls = calls_by_file(PROGRAM, folder)
    for case in cases:
        got, plain = below(calls, f"ours_{case}"), below(calls, f"theirs_{case}")
        assert got == plain
        assert set(got) == {"rows", "again", "whole"}
        reads = [result for name, _, result in got["rows"] if name == "pread64"]
        # By pread the library reads the whole array for each slice.
        assert reads == ([7 * 900 * 4, 7 * 8] * 2 if case.endswith("pread") else [])


def test_the_layout_gives_the_bytes(tmp_path: Path) -> None:
    tensor = torch.randn(5, 3).to(torch.bfloat16)
    path = saved(tmp_path / "a.safetensors", emb=tensor)
    fmt = create(DatasetConfig(format="safetensors", fields=[FieldConfig("emb", "uint16", [3])]), 1)
    plan: Any = fmt.layout(path).arrays["emb"].plan(np.arange(5), np.arange(5) * 6)
    content = b"".join(path.read_bytes()[o : o + n] for o, n in zip(plan.offsets, plan.lengths, strict=True))
    assert content == tensor.view(torch.uint8).numpy().tobytes()


def test_a_missing_library_is_told_in_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("safetensors.__version__", "0.7.0")
    config = DatasetConfig(format="safetensors", fields=[FieldConfig("x")])
    with pytest.raises(DlioError, match=r"0\.8 or newer"):
        create(replace(config, safetensors=SafetensorsConfig(backend="pread")), 1)
    monkeypatch.setitem(sys.modules, "safetensors", None)
    with pytest.raises(MissingPackageError, match="not installed") as error:
        create(config, 1)
    assert error.value.hint == "pip install 'dlio-torch[safetensors]'"
