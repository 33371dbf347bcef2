"""How the ranks of a run find each other for the failure channel: one TCP connection to rank 0 each.

Rank 0 listens, its addresses and a secret travel through the communicator that already exists, the
others connect and show the secret.  Where all ranks share a host the listener is bound to loopback,
so nothing depends on a host name that resolves.
"""

from __future__ import annotations

import hmac
import json
import os
import resource
import secrets
import socket
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from threading import Lock
from typing import Any

import psutil

from dlio_torch.environment.host import host_identity
from dlio_torch.errors import RunFailed

Gather = Callable[[Any], "list[Any] | None"]
"""Every rank's value on rank 0, ``None`` elsewhere."""

Broadcast = Callable[[Any], Any]
"""Rank 0's value on every rank."""

Message = dict[str, Any]

_STRANGER_S = 5.0  # a rank that has connected says who it is within this time, or it is none of ours
_WELCOME_S = 30.0  # rank 0 takes one rank after the other, the last of many waits
_OTHER_FILES = 256  # beside the connections: data, workers, the backend's own
_ADDRESS_S = 3.0  # one of several addresses of rank 0 that does not answer is given up after this time


@dataclass
class Link:
    """A connection to one other rank, which carries one JSON object a line.

    Attributes:
        rank: the other rank.
        pid: its process.
        host: its host.
        sock: the connection.
        ending: it said goodbye, or that it is about to end: the end of this connection is no news.
        ready: it is about to end and waits for rank 0 to do so first.
    """

    rank: int
    pid: int
    host: str
    sock: socket.socket
    ending: bool = False
    ready: bool = False
    _received: bytes = b""
    _sending: Lock = field(default_factory=Lock)

    def send(self, **message: Any) -> None:
        """Send one message; a connection that is gone is left to the reader to notice."""
        with suppress(OSError), self._sending:
            self.sock.sendall(json.dumps(message).encode() + b"\n")

    def receive(self) -> tuple[list[Message], bool]:
        """Read once: the complete messages so far, and whether the connection still stands."""
        try:
            data = self.sock.recv(65536)
        except OSError:
            return [], False
        *lines, self._received = (self._received + data).split(b"\n")
        return [json.loads(line) for line in lines], bool(data)

    def goodbye(self) -> None:
        """Say that this rank ends as it should, and that nothing more will be sent."""
        self.send(type="bye")
        with suppress(OSError):  # the other side was quicker
            self.sock.shutdown(socket.SHUT_WR)


@dataclass(frozen=True)
class Invitation:
    """Where rank 0 listens, and what to show there; ``error`` where it cannot."""

    addresses: tuple[str, ...] = ()
    port: int = 0
    token: str = ""
    error: str = ""


def meet(rank: int, world_size: int, gather: Gather, broadcast: Broadcast, timeout_s: float) -> list[Link]:
    """Connect rank 0 with every other rank; called by all ranks at once.

    Returns:
        Links to ranks 1 and up on rank 0, the one link to rank 0 elsewhere.

    Raises:
        RunFailed: no connection within ``timeout_s`` seconds.
    """
    hosts = gather(host_identity())
    if hosts is None:
        return [_dial(rank, broadcast(None), timeout_s)]
    try:
        _allow_open(world_size)
        server = _listen(len(set(hosts)) == 1, world_size)
    except OSError as error:
        broadcast(Invitation(error=str(error)))
        raise RunFailed(f"rank 0 cannot listen for the other ranks: {error}") from error
    with server:
        addresses = tuple(_addresses()) if len(set(hosts)) > 1 else ("127.0.0.1",)
        invitation = Invitation(addresses, server.getsockname()[1], secrets.token_hex(16))
        broadcast(invitation)
        return _accept(server, invitation, world_size, timeout_s)


def _allow_open(connections: int) -> None:
    """Let this process have a connection to each rank open: systems allow 1,024 files, and more on demand."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    needed = connections + _OTHER_FILES
    if soft == resource.RLIM_INFINITY or soft >= needed:
        return
    if hard != resource.RLIM_INFINITY and hard < needed:
        raise OSError(f"{connections} ranks need {needed} open files, and {hard} are allowed (ulimit -Hn)")
    resource.setrlimit(resource.RLIMIT_NOFILE, (needed, hard))


def _listen(same_host: bool, backlog: int) -> socket.socket:
    if same_host:
        return socket.create_server(("127.0.0.1", 0), backlog=backlog)
    if socket.has_dualstack_ipv6():
        return socket.create_server(("", 0), family=socket.AF_INET6, backlog=backlog, dualstack_ipv6=True)
    return socket.create_server(("", 0), backlog=backlog)


def _addresses() -> list[str]:
    """Addresses under which another host may reach this one, the likeliest first."""
    found: dict[str, None] = {}
    up = {name for name, stats in psutil.net_if_stats().items() if stats.isup}
    for family in (socket.AF_INET, socket.AF_INET6):
        with suppress(OSError):  # where the host name does not resolve, the interfaces are enough
            infos = socket.getaddrinfo(socket.gethostname(), None, family, socket.SOCK_STREAM)
            found.update((str(info[4][0]), None) for info in infos)
        for name, addresses in psutil.net_if_addrs().items():
            if name in up:
                found.update((entry.address, None) for entry in addresses if entry.family == family)
    return [address for address in found if not address.startswith(("127.", "::1", "fe80:"))]


def _accept(server: socket.socket, invitation: Invitation, world_size: int, timeout_s: float) -> list[Link]:
    deadline = time.monotonic() + timeout_s
    links: dict[int, Link] = {}
    while len(links) < world_size - 1:
        server.settimeout(max(0.01, deadline - time.monotonic()))
        try:
            sock, _ = server.accept()
        except TimeoutError:
            missing = sorted(set(range(1, world_size)) - set(links))
            message = f"rank {missing[0]} did not connect to rank 0 within {timeout_s:g} s"
            for link in links.values():
                link.send(type="fail", rank=0, line=f"rank 0 failed: {message}", exit_code=1)
                link.sock.close()
            raise RunFailed(
                f"{message} ({', '.join(invitation.addresses)}, port {invitation.port}; {len(missing)} missing)",
                hint="let the nodes connect to each other on any port",
            ) from None
        hello = _first_message(sock, _STRANGER_S)
        if hello is None or not hmac.compare_digest(str(hello.get("token")).encode(), invitation.token.encode()):
            sock.close()
            continue
        link = Link(hello["rank"], hello["pid"], hello["host"], _prepare(sock))
        link.send(type="welcome", pid=os.getpid(), host=socket.gethostname())
        links[link.rank] = link
    return [links[rank] for rank in sorted(links)]


def _dial(rank: int, invitation: Invitation, timeout_s: float) -> Link:
    if invitation.error:
        raise RunFailed(f"rank 0 cannot listen for the other ranks: {invitation.error}")
    hello = {"type": "hello", "token": invitation.token, "rank": rank}
    hello |= {"pid": os.getpid(), "host": socket.gethostname()}
    deadline = time.monotonic() + timeout_s
    for address in invitation.addresses:
        left = max(0.1, deadline - time.monotonic())
        try:
            sock = socket.create_connection((address, invitation.port), min(_ADDRESS_S, left))
        except OSError:
            continue
        try:
            sock.sendall(json.dumps(hello).encode() + b"\n")
        except OSError:
            sock.close()
            continue
        welcome = _first_message(sock, max(_STRANGER_S, min(_WELCOME_S, left)))
        if welcome is not None and welcome.get("type") == "welcome":
            return Link(0, welcome["pid"], welcome["host"], _prepare(sock))
        sock.close()
    raise RunFailed(
        f"rank {rank} reaches rank 0 under none of {', '.join(invitation.addresses)}, port {invitation.port}",
        hint="let the nodes connect to each other on any port",
    )


def _first_message(sock: socket.socket, timeout_s: float) -> Message | None:
    """The first line that a new connection sends; ``None`` for silence or for anything but our messages."""
    sock.settimeout(timeout_s)
    received = b""
    try:
        # Byte by byte: what follows the line belongs to the next reader.
        while not received.endswith(b"\n") and len(received) < 4096:
            byte = sock.recv(1)
            if not byte:
                return None
            received += byte
        message = json.loads(received)
    except (OSError, ValueError):
        return None
    return message if isinstance(message, dict) else None


def _prepare(sock: socket.socket) -> socket.socket:
    """Small messages at once, and a host that vanished noticed within half a minute."""
    sock.settimeout(None)
    options = {"TCP_NODELAY": 1, "TCP_KEEPIDLE": 10, "TCP_KEEPINTVL": 5, "TCP_KEEPCNT": 4}
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for name, value in options.items():
        if hasattr(socket, name):
            sock.setsockopt(socket.IPPROTO_TCP, getattr(socket, name), value)
    return sock
