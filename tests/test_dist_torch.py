from __future__ import annotations

from types import SimpleNamespace

import pytest
import torch

from dlio_torch.dist import torchdist


def show_gpus(monkeypatch: pytest.MonkeyPatch, *uuids: str) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: bool(uuids))
    monkeypatch.setattr(torch.cuda, "device_count", lambda: len(uuids))
    monkeypatch.setattr(torch.cuda, "get_device_properties", lambda index: SimpleNamespace(uuid=uuids[index]))
    monkeypatch.setattr(torch.distributed, "is_nccl_available", lambda: True)


def test_a_rank_takes_the_gpu_of_its_number(monkeypatch: pytest.MonkeyPatch) -> None:
    show_gpus(monkeypatch, "a", "b")
    first, second = torchdist._gpu(0), torchdist._gpu(1)
    assert first is not None
    assert second is not None
    assert (first[0], second[0]) == (0, 1)
    assert torchdist._all_different([first[1], second[1]])


def test_a_rank_that_sees_only_its_own_gpu_takes_that(monkeypatch: pytest.MonkeyPatch) -> None:
    show_gpus(monkeypatch, "a")
    first = torchdist._gpu(0)
    show_gpus(monkeypatch, "b")
    second = torchdist._gpu(1)
    assert first is not None
    assert second is not None
    assert (first[0], second[0]) == (0, 0)
    assert torchdist._all_different([first[1], second[1]])


def test_ranks_that_would_share_a_gpu_stay_with_gloo(monkeypatch: pytest.MonkeyPatch) -> None:
    show_gpus(monkeypatch, "a")
    first, second = torchdist._gpu(0), torchdist._gpu(1)
    assert first is not None
    assert second is not None
    assert not torchdist._all_different([first[1], second[1]])


def test_a_rank_without_a_gpu_keeps_all_with_gloo(monkeypatch: pytest.MonkeyPatch) -> None:
    show_gpus(monkeypatch)
    assert torchdist._gpu(0) is None
    assert not torchdist._all_different([None])
    assert not torchdist._all_different([("host", "a"), None])
    assert not torchdist._all_different(None)


@pytest.mark.parametrize(("local", "interface"), [("2", "lo"), ("1", None)])
def test_ranks_of_one_host_use_loopback(local: str, interface: str | None, monkeypatch: pytest.MonkeyPatch) -> None:
    environ = {"LOCAL_WORLD_SIZE": local, "WORLD_SIZE": "2"}
    monkeypatch.setattr(torchdist.os, "environ", environ)
    monkeypatch.setattr(torchdist.socket, "if_nameindex", lambda: [(1, "lo"), (2, "eth0")])
    torchdist._stay_on_this_host()
    assert environ.get("GLOO_SOCKET_IFNAME") == interface
    environ["GLOO_SOCKET_IFNAME"] = "eth0"
    torchdist._stay_on_this_host()
    assert environ["GLOO_SOCKET_IFNAME"] == "eth0"
