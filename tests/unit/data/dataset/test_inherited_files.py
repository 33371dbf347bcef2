"""Mapped files that the rank's process opens, and that forked workers go on to read."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from data_files import make
from format_configs import CONFIGS

from dlio_torch.config.compose import compose
from dlio_torch.config.schema import Config
from dlio_torch.data.dataset.map_dataset import SampleDataset
from dlio_torch.errors import ConfigError
from dlio_torch.iotrace.recorder.spans import NULL


@pytest.mark.parametrize(("inherited", "opens"), [(True, 2), (False, 4)])
def test_a_worker_opens_nothing_that_it_inherits(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, inherited: bool, opens: int
) -> None:
    dataset = replace(CONFIGS["tokens"], root=str(tmp_path), num_files=2, samples_per_file=2)
    fmt, manifests = make(Config(recipe="test", dataset=dataset))
    opened: list[Path] = []
    plain_open = fmt.open

    def counted_open(path: Path, *args: Any) -> Any:
        opened.append(path)
        return plain_open(path, *args)

    monkeypatch.setattr(fmt, "open", counted_open)
    samples = SampleDataset(fmt, manifests["train"], NULL, inherited=inherited)
    samples.open_first()
    for pid in (os.getpid() + 1, os.getpid() + 2):  # two workers after a fork
        monkeypatch.setattr(os, "getpid", lambda pid=pid: pid)
        samples.__getitems__(range(4))
    assert len(opened) == opens
    samples.close_first()


@pytest.mark.parametrize("setting", ["dataset.tokens.memory_map=false", "loader.multiprocessing_context=spawn"])
def test_only_mappings_are_inherited(setting: str) -> None:
    words = ["recipe=minimal", "dataset.format=tokens", "dataset.fields=[]", "loader.num_workers=1"]
    compose([*words, "loader.opened_by=main"])
    with pytest.raises(ConfigError, match=r"loader\.opened_by"):
        compose([*words, "loader.opened_by=main", setting])
