from __future__ import annotations

import pytest

from dlio_torch.dist import torchdist


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
