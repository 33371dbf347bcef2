"""The rendezvous of the failure channel: each rank opens one TCP connection to rank 0.

Rank 0 listens.  Its addresses and a secret travel through the communicator that already exists; the
others connect and show the secret.  If all ranks share a host, rank 0 listens on loopback,
so nothing depends on a host name that resolves.

``torch.distributed.TCPStore`` also connects all ranks to rank 0.  It has one address, which every rank must know and
resolve, listens on all interfaces, and takes any client.  ``multiprocessing.connection`` checks a secret, but a
stranger that connects and sends nothing blocks its listener, and it has neither IPv6 nor a timeout.
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
"""A gather: returns every rank's value on rank 0, and ``None`` on other ranks."""

Broadcast = Callable[[Any], Any]
"""A broadcast: returns rank 0's value on every rank."""

Message = dict[str, Any]

_HELLO_S = 5.0  # for the first message on a new connection; a port scanner sends none
_WELCOME_S = 30.0  # rank 0 answers one rank after the other, and the last of many waits
_OTHER_FILES = 256  # open files besides the connections: data, workers, the backend
_ADDRESS_S = 3.0  # for each of the addresses of rank 0 to answer


@dataclass
class Link:
    """A connection to another rank, which carries one JSON object per line.

    Attributes:
        rank: the other rank.
        pid: its process.
        host: its host.
        sock: the connection.
        ending: it has said that it ends, so the end of this connection is expected.
        ready: it is about to end and waits for rank 0 to end first.
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
        """Send one message; the reader of the connection notices if the connection is broken."""
        with suppress(OSError), self._sending:
            self.sock.sendall(json.dumps(message).encode() + b"\n")

    def receive(self) -> tuple[list[Message], bool]:
        """Read once; returns the complete messages, and whether the connection is still open."""
        try:
            data = self.sock.recv(65536)
        except OSError:
            return [], False
        *lines, self._received = (self._received + data).split(b"\n")
        return [json.loads(line) for line in lines], bool(data)

    def goodbye(self) -> None:
        """Send that this rank ends as planned, and close the sending side."""
        self.send(type="bye")
        with suppress(OSError):  # the other side has closed it already
            self.sock.shutdown(socket.SHUT_WR)


@dataclass(frozen=True)
class RendezvousPoint:
    """Addresses and port at which rank 0 listens, and the secret that it checks.

    Attributes:
        addresses: IP addresses, the likeliest first.
        port: TCP port.
        token: the secret.
        error: why rank 0 cannot listen; empty if it does.
    """

    addresses: tuple[str, ...] = ()
    port: int = 0
    token: str = ""
    error: str = ""


def connect_to_rank_0(rank: int, world_size: int, gather: Gather, broadcast: Broadcast, timeout_s: float) -> list[Link]:
    """Connect every rank with rank 0; called by all ranks at once.

    Returns:
        On rank 0 the links to all other ranks; elsewhere the one link to rank 0.

    Raises:
        RunFailed: no connection within ``timeout_s`` seconds.
    """
    hosts = gather(host_identity())
    if hosts is None:
        return [_connect(rank, broadcast(None), timeout_s)]
    try:
        _allow_open(world_size)
        server = _listen(len(set(hosts)) == 1, world_size)
    except OSError as error:
        broadcast(RendezvousPoint(error=str(error)))
        raise RunFailed(f"rank 0 cannot listen for the other ranks: {error}") from error
    with server:
        addresses = tuple(_addresses()) if len(set(hosts)) > 1 else ("127.0.0.1",)
        point = RendezvousPoint(addresses, server.getsockname()[1], secrets.token_hex(16))
        broadcast(point)
        return _accept(server, point, world_size, timeout_s)


def _allow_open(connections: int) -> None:
    """Raise the limit of open files to allow one connection per rank; the usual limit is 1,024."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    needed = connections + _OTHER_FILES
    if soft == resource.RLIM_INFINITY or soft >= needed:
        return
    if hard != resource.RLIM_INFINITY and hard < needed:
        raise OSError(
            f"rank 0 needs {needed} open files for {connections} ranks, and the hard limit is {hard} (ulimit -Hn)"
        )
    resource.setrlimit(resource.RLIMIT_NOFILE, (needed, hard))


def _listen(same_host: bool, backlog: int) -> socket.socket:
    if same_host:
        return socket.create_server(("127.0.0.1", 0), backlog=backlog)
    if socket.has_dualstack_ipv6():
        return socket.create_server(("", 0), family=socket.AF_INET6, backlog=backlog, dualstack_ipv6=True)
    return socket.create_server(("", 0), backlog=backlog)


def _addresses() -> list[str]:
    """Returns addresses at which another host may reach this host, the likeliest first."""
    addresses: dict[str, None] = {}
    up = {name for name, stats in psutil.net_if_stats().items() if stats.isup}
    for family in (socket.AF_INET, socket.AF_INET6):
        with suppress(OSError):  # if the host name does not resolve, the interfaces are enough
            infos = socket.getaddrinfo(socket.gethostname(), None, family, socket.SOCK_STREAM)
            addresses.update((str(info[4][0]), None) for info in infos)
        for name, entries in psutil.net_if_addrs().items():
            if name in up:
                addresses.update((entry.address, None) for entry in entries if entry.family == family)
    return [address for address in addresses if not address.startswith(("127.", "::1", "fe80:"))]


def _accept(server: socket.socket, point: RendezvousPoint, world_size: int, timeout_s: float) -> list[Link]:
    deadline = time.monotonic() + timeout_s
    links: dict[int, Link] = {}
    while len(links) < world_size - 1:
        server.settimeout(max(0.01, deadline - time.monotonic()))
        try:
            sock, _ = server.accept()
        except TimeoutError:
            absent = sorted(set(range(1, world_size)) - set(links))
            message = f"rank {absent[0]} did not connect to rank 0 within {timeout_s:g} s"
            for link in links.values():
                link.send(type="fail", rank=0, line=f"rank 0 failed: {message}", exit_code=1)
                link.sock.close()
            raise RunFailed(
                f"{message} ({', '.join(point.addresses)}, port {point.port}; {len(absent)} ranks missing)",
                hint="have all TCP ports between the nodes opened (firewall)",
            ) from None
        hello = _first_message(sock, _HELLO_S)
        if hello is None or not hmac.compare_digest(str(hello.get("token")).encode(), point.token.encode()):
            sock.close()
            continue
        link = Link(hello["rank"], hello["pid"], hello["host"], _prepare(sock))
        link.send(type="welcome", pid=os.getpid(), host=socket.gethostname())
        links[link.rank] = link
    return [links[rank] for rank in sorted(links)]


def _connect(rank: int, point: RendezvousPoint, timeout_s: float) -> Link:
    if point.error:
        raise RunFailed(f"rank 0 cannot listen for the other ranks: {point.error}")
    hello = {"type": "hello", "token": point.token, "rank": rank}
    hello |= {"pid": os.getpid(), "host": socket.gethostname()}
    deadline = time.monotonic() + timeout_s
    for address in point.addresses:
        left = max(0.1, deadline - time.monotonic())
        try:
            sock = socket.create_connection((address, point.port), min(_ADDRESS_S, left))
        except OSError:
            continue
        try:
            sock.sendall(json.dumps(hello).encode() + b"\n")
        except OSError:
            sock.close()
            continue
        welcome = _first_message(sock, max(_HELLO_S, min(_WELCOME_S, left)))
        if welcome is not None and welcome.get("type") == "welcome":
            return Link(0, welcome["pid"], welcome["host"], _prepare(sock))
        sock.close()
    raise RunFailed(
        f"rank {rank} cannot connect to rank 0 at any of {', '.join(point.addresses)}, port {point.port}",
        hint="have all TCP ports between the nodes opened (firewall)",
    )


def _first_message(sock: socket.socket, timeout_s: float) -> Message | None:
    """Returns the first message of a new connection; ``None`` if none comes, or if it is not a JSON object."""
    sock.settimeout(timeout_s)
    received = b""
    try:
        # Byte by byte: the bytes after the line belong to the next reader.
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
    """Set the options of a connection: small messages are sent at once, and a lost host is noticed in 30 s."""
    sock.settimeout(None)
    options = {"TCP_NODELAY": 1, "TCP_KEEPIDLE": 10, "TCP_KEEPINTVL": 5, "TCP_KEEPCNT": 4}
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for name, value in options.items():
        if hasattr(socket, name):
            sock.setsockopt(socket.IPPROTO_TCP, getattr(socket, name), value)
    return sock
