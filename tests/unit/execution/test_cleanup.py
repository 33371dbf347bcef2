from __future__ import annotations

import threading
import time
from collections.abc import Callable

import pytest

from dlio_torch.execution import cleanup
from dlio_torch.execution.cleanup import Cleanup


class Hanging:
    def __init__(self) -> None:
        self.called = threading.Event()
        self.release = threading.Event()

    def close(self) -> None:
        self.called.set()
        self.release.wait(30)


def use(*opens: Callable[[Cleanup], object], fails: bool) -> None:
    """Open resources in their order, and fail where that is asked for."""
    with Cleanup() as opened:
        for open_one in opens:
            open_one(opened)
        if fails:
            raise ValueError("the first error")


def test_a_close_that_hangs_after_a_failure_does_not_hold_the_run(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cleanup, "CLOSE_S", 0.05)
    loader = Hanging()
    start = time.monotonic()
    with pytest.raises(ValueError, match="the first error"):
        use(lambda opened: opened.closing(loader), fails=True)
    assert loader.called.is_set()
    assert time.monotonic() - start < 20  # and not the 30 s of the loader
    loader.release.set()


def test_an_error_of_a_close_does_not_hide_the_first_one() -> None:
    closed: list[str] = []

    def fail() -> None:
        closed.append("failed")
        raise RuntimeError("a worker died")

    with pytest.raises(ValueError, match="the first error"):
        use(
            lambda opened: opened.on_exit(lambda: closed.append("log")), lambda opened: opened.on_exit(fail), fails=True
        )
    assert closed == ["failed", "log"]
    with pytest.raises(RuntimeError, match="a worker died"):
        use(lambda opened: opened.on_exit(fail), fails=False)


def test_after_a_failure_copies_are_removed_and_not_closed() -> None:
    calls: list[str] = []

    def stage(opened: Cleanup) -> None:
        opened.on_exit(lambda: calls.append("close"), after_failure=lambda: calls.append("remove"))

    def fail() -> None:
        raise RuntimeError("a worker died")

    use(stage, fails=False)
    assert calls == ["close"]
    with pytest.raises(ValueError, match="the first error"):
        use(stage, fails=True)
    assert calls == ["close", "remove"]
    with pytest.raises(RuntimeError, match="a worker died"):
        use(stage, lambda opened: opened.on_exit(fail), fails=False)
    assert calls == ["close", "remove", "remove"]
