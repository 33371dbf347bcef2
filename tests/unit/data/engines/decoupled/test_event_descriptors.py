"""Event descriptors: what is set is cleared once, and no call blocks."""

from __future__ import annotations

import os
import select
from collections.abc import Iterator

import pytest
from interpreter_lock import turns_of_another_thread

from dlio_torch.data.engines.decoupled.event_descriptors import clear_event, set_event


@pytest.fixture
def event() -> Iterator[int]:
    descriptor = os.eventfd(0, os.EFD_NONBLOCK)
    yield descriptor
    os.close(descriptor)


def is_set(descriptor: int) -> bool:
    poll = select.poll()
    poll.register(descriptor, select.POLLIN)
    return bool(poll.poll(0))


def test_what_is_set_is_cleared_once(event: int) -> None:
    clear_event(event)  # does not block
    assert not is_set(event)
    set_event(event)
    set_event(event)
    assert is_set(event)
    clear_event(event)
    assert not is_set(event)


def test_the_interpreter_lock_is_kept(event: int) -> None:
    def many_times() -> None:
        for _ in range(2000):
            set_event(event)
            clear_event(event)

    assert turns_of_another_thread(many_times) == 0
