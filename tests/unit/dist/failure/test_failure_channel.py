"""The failure channel between threads of one process; test_dist_contract.py has the real ranks."""

from __future__ import annotations

import json
import os
import queue
import socket
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from typing import Any

import pytest

from dlio_torch.dist.failure import channel, rendezvous
from dlio_torch.dist.failure.absent_ranks import absent_line
from dlio_torch.dist.failure.channel import FailureChannel
from dlio_torch.dist.failure.rendezvous import Link, RendezvousPoint, connect_to_rank_0
from dlio_torch.dist.failure.timeouts import RankProgress
from dlio_torch.errors import RunFailed


def meet_all(world_size: int) -> list[list[Link]]:
    inbox: list[queue.Queue[Any]] = [queue.Queue() for _ in range(world_size)]
    hosts: queue.Queue[tuple[int, Any]] = queue.Queue()

    def gather(rank: int) -> Callable[[Any], list[Any] | None]:
        def one(value: Any) -> list[Any] | None:
            hosts.put((rank, value))
            if rank != 0:
                return None
            return [value for _, value in sorted(hosts.get(timeout=30) for _ in range(world_size))]

        return one

    def broadcast(rank: int) -> Callable[[Any], Any]:
        def one(value: Any) -> Any:
            if rank == 0:
                for box in inbox:
                    box.put(value)
            return inbox[rank].get(timeout=30)

        return one

    with ThreadPoolExecutor(world_size) as pool:
        every = [
            pool.submit(connect_to_rank_0, rank, world_size, gather(rank), broadcast(rank), 20.0)
            for rank in range(world_size)
        ]
        return [one.result() for one in every]


class Rank:
    """One rank's channel, whose end of the process is only noted."""

    def __init__(self, rank: int, links: list[Link]) -> None:
        self.links = links
        self.ended = threading.Event()
        self.exit_code: int | None = None
        self.hooked: list[tuple[str, int]] = []
        self.at_exit: list[int] = []
        self.channel = FailureChannel(
            rank,
            links,
            prepare=lambda: None,
            end=self.end,
            ensure_exit=lambda code, _: self.at_exit.append(code),
        )
        self.channel.hooks.append(lambda line, code: self.hooked.append((line, code)))

    def end(self, exit_code: int) -> None:
        self.exit_code = exit_code
        self.vanish()
        self.ended.set()

    def vanish(self) -> None:
        """Do to the connections what the end of the process would do."""
        for link in self.links:
            with suppress(OSError):
                link.sock.shutdown(socket.SHUT_RDWR)


@pytest.fixture
def ranks() -> Iterator[list[Rank]]:
    made = [Rank(rank, links) for rank, links in enumerate(meet_all(3))]
    yield made
    for rank in made:
        rank.vanish()
        rank.channel._reader.join(10)
        assert not rank.channel._reader.is_alive()


def test_every_rank_has_a_link_to_rank_0(ranks: list[Rank]) -> None:
    assert [[link.rank for link in rank.links] for rank in ranks] == [[1, 2], [0], [0]]
    assert {link.pid for rank in ranks for link in rank.links} == {os.getpid()}


@pytest.mark.parametrize("failing", [0, 1, 2])
def test_a_failure_ends_all_others_with_its_line_and_code(
    ranks: list[Rank], failing: int, capfd: pytest.CaptureFixture[str]
) -> None:
    done = threading.Thread(target=lambda: ranks[failing].channel.fail("no\nspace", 3))
    done.start()
    if failing == 0:  # its process would end here, and the others wait for that
        done.join(20)
        ranks[0].vanish()
    for number, rank in enumerate(ranks):
        if number != failing:
            assert rank.ended.wait(20)
            assert rank.exit_code == 3
            assert rank.hooked == [(f"rank {failing} failed: no space", 3)]
    done.join(20)
    assert ranks[failing].at_exit == [3]
    assert ranks[failing].exit_code is None
    assert ranks[failing].hooked == []
    printed = capfd.readouterr().err.splitlines()
    assert printed == ([] if failing == 0 else [f"dlio_torch: error: rank {failing} failed: no space"])


@pytest.mark.parametrize("dying", [0, 1, 2])
def test_a_rank_that_ends_without_a_word_is_reported(
    ranks: list[Rank], dying: int, capfd: pytest.CaptureFixture[str]
) -> None:
    ranks[dying].channel._state = "closed"  # a dead process does not react
    ranks[dying].vanish()
    for number, rank in enumerate(ranks):
        if number != dying:
            assert rank.ended.wait(20)
            assert rank.exit_code == 1
    line = f"dlio_torch: error: rank {dying} (pid {os.getpid()}, host {socket.gethostname()}) died"
    assert capfd.readouterr().err.splitlines() == [line]


@pytest.mark.parametrize("order", [(0, 1, 2), (2, 1, 0), (1, 0, 2)])
def test_goodbyes_in_any_order_are_no_failure(ranks: list[Rank], order: tuple[int, ...]) -> None:
    for number in order:
        ranks[number].channel.close()
        ranks[number].channel.close()
        ranks[number].channel.fail("after the goodbye", 7)
    for rank in ranks:
        assert not rank.ended.is_set()
        assert rank.at_exit == []


def test_ranks_that_fail_at_once_do_not_wait_for_each_other(ranks: list[Rank]) -> None:
    threads = [threading.Thread(target=rank.channel.fail, args=("all", 2 + i)) for i, rank in enumerate(ranks)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(20)
        assert not thread.is_alive()
    # Each has its own code, from its own failure or from the one that was quicker.
    assert all(rank.at_exit or rank.exit_code is not None for rank in ranks)


@pytest.mark.parametrize("asking", [0, 2])
def test_ranks_that_did_not_come_are_named(
    ranks: list[Rank], asking: int, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(channel, "_ANSWER_S", 0.2)
    for number, rank in enumerate(ranks):
        inside = number != 1
        progress: RankProgress = {
            "number": 7 - number % 2,
            "seconds": 5.0,
            "inside": inside,
            "function": "" if inside else "read (x.py:1)",
        }
        rank.channel._progress = lambda progress=progress: progress  # type: ignore[misc]
    asked = threading.Thread(target=ranks[asking].channel.end_for_absent_rank, args=("barrier", 7, 4.0), daemon=True)
    asked.start()
    for rank in ranks:
        assert rank.ended.wait(20)
        assert rank.exit_code == 1
    who = f"rank 1 (pid {os.getpid()}, host {socket.gethostname()})"
    line = f"dlio_torch: error: {who} did not enter barrier (collective 7) within 4 s: "
    why = (
        "the rank's last collective ended 5 s ago, now in read (x.py:1); if the rank is only slow, raise dist.timeout_s"
    )
    assert capfd.readouterr().err.splitlines() == [line + why]


def test_what_is_said_of_many_ranks_and_of_none() -> None:
    names = {rank: f"rank {rank}" for rank in range(8)}
    came: RankProgress = {"number": 3, "seconds": 1.0, "inside": True, "function": ""}
    rank, line = absent_line(names, {0: came, 7: came}, "gather", 3, 9.0)
    assert rank == 1
    assert line.startswith("rank 1 did not enter gather (collective 3) within 9 s: the rank does not answer")
    assert line.count("; rank ") == 3
    assert line.endswith("; 2 more ranks did not enter it")
    rank, line = absent_line(names, dict.fromkeys(names, came), "gather", 3, 9.0)
    assert rank == -1
    assert "though all ranks have entered it" in line


def test_a_forked_child_holds_no_connection_and_cannot_fail_for_its_parent(ranks: list[Rank]) -> None:
    child = os.fork()
    if child == 0:
        closed = all(link.sock.fileno() == -1 for rank in ranks for link in rank.links)
        ranks[1].channel.fail("from a child", 5)
        ranks[1].channel.close()
        os._exit(0 if closed and not ranks[1].at_exit else 1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    assert ranks[1].channel.is_open


def test_ranks_on_several_hosts_meet_over_the_network(monkeypatch: pytest.MonkeyPatch) -> None:
    if not rendezvous._addresses():
        pytest.skip("this host has no network interface but loopback")
    monkeypatch.setattr(rendezvous, "host_identity", lambda: (str(threading.get_ident()), "", ""))
    every = meet_all(2)
    peer = every[1][0].sock.getpeername()[0]
    assert not peer.startswith("127.")
    for links in every:
        for link in links:
            link.sock.close()


def test_a_stranger_is_turned_away() -> None:
    server = socket.create_server(("127.0.0.1", 0))
    port = server.getsockname()[1]
    point = RendezvousPoint(("127.0.0.1",), port, "the secret")
    strangers = []
    for first in (b"GET / HTTP/1.0\r\n\r\n", json.dumps({"token": "g\u00fcess", "rank": 1}).encode() + b"\n"):
        stranger = socket.create_connection(("127.0.0.1", port))
        stranger.sendall(first)
        strangers.append(stranger)
    with ThreadPoolExecutor(1) as pool, server:
        accepted = pool.submit(rendezvous._accept, server, point, 2, 30.0)
        own = rendezvous._connect(1, point, 30.0)
        links = accepted.result()
    assert [link.rank for link in links] == [1]
    for stranger in strangers:
        with suppress(ConnectionResetError):  # what it sent beyond the first line was not read
            assert stranger.recv(10) == b""
    for sock in [*strangers, own.sock, links[0].sock]:
        sock.close()


def test_a_rank_that_never_connects_is_named() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server, pytest.raises(RunFailed, match="rank 1 did not connect"):
        rendezvous._accept(server, RendezvousPoint(("127.0.0.1",), 1, "secret"), 2, 0.1)


def test_an_address_that_does_not_answer_is_named() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
    with pytest.raises(RunFailed, match=rf"rank 3 cannot connect to rank 0 at any of 127\.0\.0\.1, port {port}"):
        rendezvous._connect(3, RendezvousPoint(("127.0.0.1",), port, "secret"), 5.0)
    with pytest.raises(RunFailed, match="no ports left"):
        rendezvous._connect(3, RendezvousPoint(error="no ports left"), 5.0)
