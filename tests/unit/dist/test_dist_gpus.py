from __future__ import annotations

from types import SimpleNamespace

import pytest
import torch

from dlio_torch.dist.gpus import all_different, own_gpu


def show_gpus(monkeypatch: pytest.MonkeyPatch, *uuids: str) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: bool(uuids))
    monkeypatch.setattr(torch.cuda, "device_count", lambda: len(uuids))
    monkeypatch.setattr(torch.cuda, "get_device_properties", lambda index: SimpleNamespace(uuid=uuids[index]))


def test_a_rank_takes_the_gpu_of_its_number(monkeypatch: pytest.MonkeyPatch) -> None:
    show_gpus(monkeypatch, "a", "b")
    first, second = own_gpu(0), own_gpu(1)
    assert first is not None
    assert second is not None
    assert (first[0], second[0]) == (0, 1)
    assert all_different([first[1], second[1]])


def test_a_rank_that_sees_only_its_own_gpu_takes_that(monkeypatch: pytest.MonkeyPatch) -> None:
    show_gpus(monkeypatch, "a")
    first = own_gpu(0)
    show_gpus(monkeypatch, "b")
    second = own_gpu(1)
    assert first is not None
    assert second is not None
    assert (first[0], second[0]) == (0, 0)
    assert all_different([first[1], second[1]])


def test_ranks_that_would_share_a_gpu_stay_with_gloo(monkeypatch: pytest.MonkeyPatch) -> None:
    show_gpus(monkeypatch, "a")
    first, second = own_gpu(0), own_gpu(1)
    assert first is not None
    assert second is not None
    assert not all_different([first[1], second[1]])


def test_a_rank_without_a_gpu_keeps_all_with_gloo(monkeypatch: pytest.MonkeyPatch) -> None:
    show_gpus(monkeypatch)
    assert own_gpu(0) is None
    assert not all_different([None])
    assert not all_different([("host", "a"), None])
    assert not all_different(None)
