"""Recognition of folders that are one data set, however many files they hold."""

from __future__ import annotations

from pathlib import Path

import pytest

from dlio_torch.formats.core.recognition import recognised_folder


@pytest.mark.parametrize(
    ("name", "marks", "shard"),
    [
        ("mds", ["index.json"], "shard.{:05}.mds"),
        ("zarr", [".zarray"], "{}.0"),
        ("arrow", ["state.json", "dataset_info.json"], "data-{:05}-of-05000.arrow"),
        ("lmdb", ["data.mdb"], "{}"),
        ("imagefolder", [], "{:06}.jpg"),
    ],
)
def test_a_folder_of_thousands_of_files_is_known_by_the_few_that_mark_it(
    name: str, marks: list[str], shard: str, tmp_path: Path
) -> None:
    for entry in (*marks, *(shard.format(number) for number in range(5000))):
        (tmp_path / entry).touch()
    kind = recognised_folder(tmp_path)
    assert kind is not None
    assert kind.name == name
