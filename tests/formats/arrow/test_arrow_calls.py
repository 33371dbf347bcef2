"""Data sets that datasets wrote: equal samples, and the system calls of ``load_from_disk`` and ``ds[i]``."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from file_calls import calls_on_files
from strace import READS, need_strace

from dlio_torch.config.schema import DatasetConfig
from dlio_torch.errors import DataError
from dlio_torch.formats.arrow.describe import describe
from dlio_torch.formats.arrow.format import ArrowFormat
from dlio_torch.formats.arrow.options import ArrowConfig
from dlio_torch.formats.core.inspection import inspect_path

pytest.importorskip("datasets", reason="datasets is not installed")
pytest.importorskip("pyarrow", reason="pyarrow is not installed")

# In processes of their own: the import of datasets registers extension types and may warn.
WRITE = """
import sys, numpy as np, datasets
from datasets import Array2D, ClassLabel, Dataset, DatasetDict, Features, Image, List, Value
datasets.disable_progress_bars()
n = 2500
features = Features({
    "text": Value("string"), "label": ClassLabel(names=["a", "b"]), "flag": Value("bool"), "ids": List(Value("int32")),
    "vector": List(Value("float32"), length=4), "matrix": Array2D((3, 4), "float32"), "image": Image(),
    "rare": Value("int64"), "time": Value("timestamp[s]"),
})
content = {
    "text": ["caf\\u00e9 %d " % i * (i % 4) for i in range(n)], "label": [i % 2 for i in range(n)],
    "flag": [i % 3 == 0 for i in range(n)], "ids": [list(range(i % 7)) for i in range(n)],
    "vector": [[i, 1.0, 2.0, 3.0] for i in range(n)], "matrix": [np.full((3, 4), i, np.float32) for i in range(n)],
    "image": [{"bytes": bytes([i % 256]) * (2000 + i % 5), "path": None} for i in range(n)],
    "rare": [None if i == 1400 else i for i in range(n)], "time": [i for i in range(n)],
}
data = Dataset.from_dict(content, features=features)
data.save_to_disk("saved", num_shards=2)
data.shuffle(seed=1).save_to_disk("shuffled")
Dataset.from_dict({"text": ["x" * (2000 + i % 5) for i in range(5000)], "label": range(5000)}).save_to_disk("pages")
DatasetDict({"train": data.select(range(30)), "test": data.select(range(20))}).save_to_disk("splits")
"""
READ = """
import json, sys, datasets
data = datasets.load_from_disk(sys.argv[1]).cast_column("image", datasets.Image(decode=False))
rows = [data[i] for i in range(0, len(data), 97)]
json.dump([{**row, "image": len(row["image"]["bytes"]), "time": 0} for row in rows], open(sys.argv[2], "w"))
"""


def python(program: str, *arguments: str, cwd: Path) -> None:
    ended = subprocess.run(
        [sys.executable, "-c", program, *arguments],
        cwd=cwd,
        env=offline(cwd),
        capture_output=True,
        text=True,
        check=False,
    )
    assert ended.returncode == 0, ended.stderr


def offline(folder: Path) -> dict[str, str]:
    return {**os.environ, "HF_HUB_OFFLINE": "1", "HF_HOME": str(folder / "home"), "HF_DATASETS_OFFLINE": "1"}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("datasets")
    python(WRITE, cwd=path)
    return path


def format_of(path: Path, **options: Any) -> ArrowFormat:
    fields = list(inspect_path(str(path)).description.fields)
    return ArrowFormat(DatasetConfig(format="arrow", fields=fields, arrow=ArrowConfig(**options)), 1)


@pytest.mark.parametrize("name", ["saved", "shuffled"])
def test_samples_are_those_of_datasets(name: str, folder: Path) -> None:
    python(READ, name, f"{name}.json", cwd=folder)
    expected = json.loads((folder / f"{name}.json").read_text())
    fmt = format_of(folder / name)
    assert [field.name for field in fmt.config.fields] == ["text", "label", "flag", "ids", "vector", "matrix", "image"]
    samples = []
    for file in fmt.select(folder / name, sorted(path.name for path in (folder / name).glob("*.arrow"))):
        with closing(fmt.open(folder / name / file)) as reader:
            samples += list(fmt.stream(reader))
    assert len(samples) == 2500
    for sample, row in zip(samples[::97], expected, strict=True):
        assert sample["text"].tobytes().decode() == row["text"]
        assert sample["label"] == row["label"]
        assert sample["flag"] == row["flag"]
        assert sample["ids"].tolist() == row["ids"]
        assert sample["vector"].tolist() == row["vector"]
        assert sample["matrix"].tolist() == row["matrix"]
        assert len(sample["image"]) == row["image"]


def test_columns_that_cannot_be_read_are_named(folder: Path) -> None:
    arrays = {array.name: array for array in describe(folder / "saved").arrays}
    assert arrays["time"].note == "timestamp[s]: no tensor holds times; store them as int64"
    # The second file has it.
    assert arrays["rare"].note == "1 empty cell, which no tensor holds: fill them to read the column"
    assert arrays["matrix"].shape == (2500, 3, 4)
    assert arrays["text"].chunks == (100,)


def test_a_folder_with_several_splits_is_refused_with_their_names(folder: Path) -> None:
    with pytest.raises(DataError, match="holds the splits train, test") as refused:
        inspect_path(str(folder / "splits"))
    assert refused.value.hint == f"set dataset.path={folder / 'splits' / 'train'}"
    assert inspect_path(str(folder / "splits" / "test")).description.samples == 20


PLAIN = """
import datasets, sys
data = datasets.load_from_disk("saved", keep_in_memory=sys.argv[1] == "false")
data = data.select_columns(sys.argv[2].split()).cast_column("image", datasets.Image(decode=False))
for i in (5, 1700, 900, 2400):
    data[i]
"""
OURS = """
import sys
from pathlib import Path
from dlio_torch.config.schema import DatasetConfig, FieldConfig
from dlio_torch.formats.arrow.format import ArrowFormat
from dlio_torch.formats.arrow.options import ArrowConfig
from dlio_torch.formats.core.inspection import inspect_path
from dlio_torch.formats.testing.contract import read
fields = inspect_path("saved/data-00000-of-00002.arrow").description.fields
fields = [field for field in fields if field.name in sys.argv[2].split()]
fmt = ArrowFormat(DatasetConfig(format="arrow", fields=fields, arrow=ArrowConfig(memory_map=sys.argv[1] == "true")), 1)
open("mark", "w").close()
readers = [fmt.open(Path("saved") / f"data-0000{i}-of-00002.arrow") for i in range(2)]
for i in (5, 1700, 900, 2400):
    read(fmt, readers[i // 1250], [i % 1250])
for reader in readers:
    reader.close()
"""


@pytest.mark.parametrize("memory_map", ["true", "false"])
def test_the_system_calls_are_those_of_datasets(memory_map: str, folder: Path) -> None:
    need_strace()
    columns = "text label flag ids vector matrix image"
    plain = calls_on_files(PLAIN, folder, ".arrow", memory_map, columns, env=offline(folder))
    ours = calls_on_files(OURS, folder, ".arrow", memory_map, columns, env=offline(folder))
    assert ours == plain
    mapped = [name for calls in ours.values() for name, *_ in calls if name == "mmap"]
    assert len(mapped) == (2 if memory_map == "true" else 0)
    reads = [name for calls in ours.values() for name, *_ in calls if name in READS]
    assert bool(reads) == (memory_map == "false")


TOUCHED = """
import ctypes, json, re, statistics
def mappings():
    for line in open("/proc/self/smaps"):
        if (found := re.match("([0-9a-f]+)-([0-9a-f]+) ", line)) is not None:
            low, high = (int(address, 16) for address in found.groups())
            mapped = line.rstrip().endswith(".arrow")
        elif mapped and line.startswith("Referenced:"):
            yield low, high - low, int(line.split()[1])
def touched(read):
    # KiB of the pages that reading a row touches, of a mapping that is complete: the most frequent of several counts,
    # because a page whose address the processor remembers is missed, and one that the kernel looks at counts, too.
    usual = []
    for row in (5, 1777, 3200, 4999, 4998):
        counts = []
        for _ in range(21):
            for address, size, _ in list(mappings()):
                ctypes.string_at(address, size)
            with open("/proc/self/clear_refs", "w") as file:
                file.write("1")
            read(row)
            counts += [referenced for _, _, referenced in mappings()]
        usual.append(statistics.mode(counts))
    return usual
"""
PLAIN_PAGES = f"""{TOUCHED}
import datasets
data = datasets.load_from_disk("pages")
data[0]
json.dump(touched(lambda row: data[row]), open("plain.json", "w"))
"""
OUR_PAGES = f"""{TOUCHED}
from pathlib import Path
from dlio_torch.config.schema import DatasetConfig
from dlio_torch.formats.core.inspection import inspect_path
from dlio_torch.formats.core.registry import create
from dlio_torch.formats.testing.contract import read
fmt = create(DatasetConfig(format="arrow", fields=list(inspect_path("pages").description.fields)), 1)
reader = fmt.open(Path("pages/data-00000-of-00001.arrow"))
json.dump(touched(lambda row: read(fmt, reader, [row])), open("ours.json", "w"))
"""


def test_the_same_pages_are_touched_as_by_datasets(folder: Path) -> None:
    if not os.access("/proc/self/clear_refs", os.W_OK):
        pytest.skip("the kernel does not tell which pages are touched")
    for _ in range(3):  # the kernel may look at pages meanwhile
        python(PLAIN_PAGES, cwd=folder)
        python(OUR_PAGES, cwd=folder)
        plain, ours = (json.loads((folder / f"{side}.json").read_text()) for side in ("plain", "ours"))
        if ours == plain:
            break
    assert ours == plain
    assert all(0 < size < 64 for size in plain), "a row is a few pages"
