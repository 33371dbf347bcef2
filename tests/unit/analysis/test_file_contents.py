"""What lies in a file, and that no file gives a traceback."""

from __future__ import annotations

import gzip
import io
import json
import struct
import zipfile
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest
from ranks import REPO

from dlio_torch.analysis import file_contents
from dlio_torch.config.compose import compose
from dlio_torch.formats.core import registry
from dlio_torch.formats.hdf5 import content

REAL = next(REPO.parent.glob("*/data/cosmic_tagging_light.h5"), REPO.parent / "cosmic_tagging_light.h5")


def made(folder: Path, name: str, *options: str, samples: int = 6) -> Path:
    config = compose(["recipe=minimal", *options]).config
    fmt = registry.create(config.dataset, seed=1)
    path = folder / f"{name}{fmt.suffix}"
    with ThreadPoolExecutor(1) as pool:
        fmt.write(path, 0, samples, pool)
    return path


def summary(path: Path) -> dict[str, Any]:
    found = file_contents.summarise(path)
    assert json.loads(json.dumps(found)) == found
    assert "\n" not in found["summary"]
    return found


def test_hdf5(tmp_path: Path) -> None:
    path = tmp_path / "x.h5"
    with h5py.File(path, "w") as file:
        file.attrs["made"] = 1
        group = file.create_group("a")
        group.create_dataset("plain", data=np.zeros((3, 4), "<f4")).attrs["unit"] = "m"
        group.create_dataset("packed", data=np.zeros((8, 8), "<i2"), chunks=(4, 8), compression="gzip", shuffle=True)
        group["again"] = group["plain"]
        group["loop"] = file["/"]
        group["soft"] = h5py.SoftLink("/a/plain")
        group["outside"] = h5py.ExternalLink(str(tmp_path / "other.h5"), "/x")
        file.create_dataset("empty", data=h5py.Empty("f4"))
        layout = h5py.VirtualLayout((3, 4), "<f4")
        layout[:] = h5py.VirtualSource(tmp_path / "other.h5", "x", (3, 4))
        file.create_virtual_dataset("virtual", layout)
    found = summary(path)
    datasets = {entry["path"]: entry for entry in found["datasets"]}
    assert set(datasets) >= {"a/packed", "empty", "virtual"}
    assert len(datasets) == 4
    plain = datasets.get("a/plain") or datasets["a/again"]
    assert (plain["dtype"], plain["shape"], plain["logical_bytes"], plain["attributes"]) == ("float32", [3, 4], 48, 1)
    assert path.read_bytes()[plain["offset"] : plain["offset"] + 48] == bytes(48)
    packed = datasets["a/packed"]
    assert (packed["chunks"], packed["filters"], packed["offset"]) == ([4, 8], ["shuffle", "gzip 4"], None)
    assert 0 < packed["stored_bytes"] < packed["logical_bytes"] == 128
    assert (datasets["virtual"]["shape"], datasets["empty"]["shape"]) == (None, None)
    assert (found["links"], found["attributes"], found["complete"], found["error"]) == (2, 1, True, None)


def test_a_list_of_datasets_is_cut(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(content, "MOST", 3)
    with h5py.File(tmp_path / "x.h5", "w") as file:
        for number in range(9):
            file[f"d{number}"] = number
    found = summary(tmp_path / "x.h5")
    assert (len(found["datasets"]), found["complete"]) == (3, False)
    assert "at least 3 datasets" in found["summary"]


@pytest.mark.skipif(not REAL.exists(), reason="the application's example file is not here")
def test_a_real_file() -> None:
    found = summary(REAL)
    assert found["complete"]
    assert {entry["path"] for entry in found["datasets"]} > {"Events/event_id"}
    assert sum(entry["stored_bytes"] for entry in found["datasets"]) < found["bytes"]


@pytest.mark.parametrize("kind", ["tfrecord", "tfrecord_gzip"])
def test_tfrecord(tmp_path: Path, kind: str) -> None:
    path = made(tmp_path, "x", f"dataset={kind}", "dataset.fields.0.shape=[8]")
    found = summary(path)
    assert (found["records"], found["complete"], found["error"]) == (6, True, None)
    sizes = found["record_bytes"]
    assert sizes["min"] <= sizes["mean"] <= sizes["max"]
    if kind == "tfrecord":
        assert found["bytes"] == 6 * (sizes["mean"] + 16)
    assert found["compressed"] is (kind == "tfrecord_gzip")
    assert any(feature["bytes"] >= 32 for feature in found["features"])


def test_a_cut_tfrecord_gives_what_is_whole(tmp_path: Path) -> None:
    path = made(tmp_path, "x", "dataset=tfrecord")
    path.write_bytes(path.read_bytes()[:-5])
    found = summary(path)
    assert (found["records"], found["complete"]) == (5, False)
    assert "beyond the end" in found["error"]
    (tmp_path / "y.tfrecord").write_bytes(struct.pack("<QI", 5, 0) + b"noise" + bytes(4))
    assert summary(tmp_path / "y.tfrecord")["features"] is None


def test_other_formats(tmp_path: Path) -> None:
    np.save(tmp_path / "x.npy", np.zeros((2, 3), "<i4"))
    assert summary(tmp_path / "x.npy")["shape"] == [2, 3]
    np.save(tmp_path / "o.npy", np.array([{"pickled": 1}], object), allow_pickle=True)
    assert summary(tmp_path / "o.npy")["logical_bytes"] is None
    np.savez_compressed(tmp_path / "x.npz", a=np.zeros(1000), b=np.ones((2, 2), "u1"))
    arrays = summary(tmp_path / "x.npz")["arrays"]
    assert [(a["name"], a["shape"], a["logical_bytes"]) for a in arrays] == [("a", [1000], 8000), ("b", [2, 2], 4)]
    assert arrays[0]["stored_bytes"] < 200
    (tmp_path / "x.csv").write_text("a,b,c\n1,2,3\n4,5,6")
    found = summary(tmp_path / "x.csv")
    assert (found["columns"], found["lines"]) == (3, 3)
    flat = ("dataset.samples_per_file=1", "dataset.fields.0.dtype=uint8", "dataset.fields.0.shape=[8,9,3]")
    image = made(tmp_path, "x", "dataset=png", *flat, samples=1)
    assert summary(image)["summary"].endswith("9 x 8 RGB")
    table = made(tmp_path, "x", "dataset=parquet", "dataset.fields.0.shape=[4]")
    assert (summary(table)["rows"], summary(table)["row_groups"]) == (6, 1)
    assert summary(tmp_path)["error"] == "it is not a regular file"
    assert summary(tmp_path / "none")["error"] == "No such file or directory"
    (tmp_path / "x.bin").write_bytes(b"?" * 100)
    assert summary(tmp_path / "x.bin")["summary"] == "unknown format, 100 B"


def bomb() -> bytes:
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as archive:
        header = b"\x93NUMPY\x02\x00" + struct.pack("<I", 1 << 30) + b" " * (1 << 20)
        archive.writestr("a.npy", header)
    return file.getvalue()


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("x.h5", b"\x89HDF\r\n\x1a\n" + bytes(range(256))),
        ("x.h5", b"not HDF5 at all"),
        ("x.npy", b"\x93NUMPY\x01\x00\xff\xff{'descr': "),
        ("x.npy", b"\x93NUMPY\x01\x00" + struct.pack("<H", 40) + b"{'descr': __import__('os').abort()}     "),
        ("x.npz", b"PK\x03\x04" + bytes(60)),
        ("x.npz", bomb()),
        ("x.parquet", b"PAR1" + b"\xff" * 40 + b"PAR1"),
        ("x.png", b"\x89PNG\r\n\x1a\n" + b"\xff" * 40),
        ("x.jpeg", b"\xff\xd8\xff" + bytes(40)),
        ("x.tfrecord", struct.pack("<QI", 2**63, 0) + bytes(40)),
        ("x.tfrecord.gz", gzip.compress(struct.pack("<QI", 100, 0) + bytes(8))),
        ("x.tfrecord.gz", gzip.compress(bytes(1000))[:-20]),
    ],
    # Not the bytes: some hold the time, and workers must collect the same names.
    ids=lambda value: value if isinstance(value, str) else f"{len(value)}B",
)
def test_a_damaged_file_says_what_is_wrong(tmp_path: Path, name: str, content: bytes) -> None:
    path = tmp_path / name
    path.write_bytes(content)
    assert summary(path)["error"]


@pytest.mark.parametrize("write", [lambda path: made(path, "x"), lambda path: made(path, "x", "dataset=parquet")])
def test_any_flipped_byte_is_survived(tmp_path: Path, write: Callable[[Path], Path]) -> None:
    path = write(tmp_path)
    content = path.read_bytes()
    for at in np.random.default_rng(1).integers(0, min(len(content), 4096), 40):
        path.write_bytes(content[:at] + bytes([content[at] ^ 0xFF]) + content[at + 1 :])
        summary(path)


def test_classic_netcdf(tmp_path: Path) -> None:
    pytest.importorskip("netCDF4", reason="netCDF4 is not installed")
    fields = "dataset.fields=[{name: a, shape: [3], dtype: int16}, {name: b, shape: [2, 2]}]"
    path = made(tmp_path, "x", "dataset=netcdf_classic", "dataset.netcdf.unlimited=true", fields)
    found = summary(path)
    arrays = {entry["name"]: entry for entry in found["arrays"]}
    assert found["format"] == "netcdf"
    assert found["complete"]
    assert (arrays["a"]["dtype"], arrays["a"]["shape"], arrays["a"]["logical_bytes"]) == ("int16", [6, 3], 36)
    assert arrays["b"]["offset"] == arrays["a"]["offset"] + 8  # records lie together, padded to 4 bytes
    assert arrays["a"]["step"] == arrays["b"]["step"] == 24
    path.write_bytes(path.read_bytes()[:-1])
    assert "is incomplete: it has" in summary(path)["error"]
