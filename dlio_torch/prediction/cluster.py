"""The simulated machine: metadata servers, storage targets, and nodes with a network link and cores.

A read of ``requests`` calls of ``bytes`` in all is served in a few visits, one after another, each of a part of the
calls at one place of a file.  A call that is longer than a stripe is served by as many targets at once; where those
were more than eight, targets are taken together in groups, which are as fast as their members together.  A target
is busy for as long as its requests take by ``target_requests_per_s`` or their bytes by its share of the peak, whichever
is longer; the node's link carries the bytes meanwhile; the latency of a request keeps nobody busy but its producer.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from random import Random

from dlio_torch.config.schema_run import SystemConfig
from dlio_torch.prediction.servers import Pool, Server

VISITS = 4
"""Largest number of visits to the storage that a read is simulated as."""
_FAN = 8  # most targets that a visit keeps busy at once


class Node:
    """A simulated node: its network link and its cores.

    Attributes:
        link: to the storage.
        cores: on which batches are made; None: there are always enough.
    """

    __slots__ = ("cores", "link")

    def __init__(self, cores: int) -> None:
        self.link = Server()
        self.cores = Pool(cores) if cores else None


class Cluster:
    """The simulated cluster: its shared servers and its nodes.

    Args:
        system: its description.
        ranks: how many there are.
        files: of the data set.
        file_bytes: size of each of them; 0: not known, larger than all its stripes.
        request_bytes: mean size of a read request; 0: nothing is read.
        seed: of the places that reads go to.
    """

    def __init__(
        self, system: SystemConfig, *, ranks: int, files: int, file_bytes: float, request_bytes: float, seed: int
    ) -> None:
        self.system = system
        self.nodes = [Node(system.cores_per_node) for _ in range(math.ceil(ranks / system.ranks_per_node))]
        self.metadata = Pool(system.metadata_servers)
        spread = stripes_of(system, file_bytes)
        stripes = max(1.0, request_bytes / system.stripe_bytes)
        fan = min(spread, math.ceil(stripes))
        self._grouped = math.ceil(fan / _FAN)
        self.targets = [Server() for _ in range(math.ceil(system.targets / self._grouped))]
        self._fan = min(math.ceil(fan / self._grouped), len(self.targets))
        self._width = max(self._fan, min(math.ceil(spread / self._grouped), len(self.targets)))
        self._of_request = stripes / fan  # pieces of a request that each of its targets serves
        self._files = files
        self._random = Random(seed).random
        count = len(self.targets)
        self._read_rate = system.read_bytes_per_s / count
        self._write_rate = (system.write_bytes_per_s or system.read_bytes_per_s) / count
        requests = system.target_requests_per_s * system.targets / count
        self._request_s = self._grouped / requests if requests else 0.0
        rate = system.metadata_ops_per_s
        self._open_s = system.metadata_servers / rate if rate else 0.0

    def node_of(self, rank: int) -> Node:
        """The node of a rank; ranks fill one node after another."""
        return self.nodes[rank // self.system.ranks_per_node]

    def open(self, now: float, opens: float) -> float:
        """Time at which ``opens`` files, opened one after another, are open, s."""
        return self.metadata.serve(now, opens * self._open_s) + opens * self.system.request_latency_s

    def read(self, now: float, node: Node, size: float, requests: float) -> float:
        """Time at which ``requests`` calls with ``size`` bytes in all, at any offset, are answered, s."""
        first = int(self._random() * self._files)
        slot = int(self._random() * self._width)
        seconds = max(requests * self._of_request * self._request_s, size / self._fan / self._read_rate)
        places = [first + (slot + i) % self._width for i in range(self._fan)]
        return self._served(now, node, places, seconds, size, requests)

    def read_header(self, now: float, node: Node, requests: float) -> float:
        """Time at which ``requests`` small calls at the begin of a file are answered by the file's target, s."""
        first = int(self._random() * self._files)
        # One target and no group of them: that is where all readers of one file meet.
        rate = self.system.target_requests_per_s
        return self._served(now, node, [first], requests / rate if rate else 0.0, 0.0, requests)

    def write(self, now: float, node: Node, size: float) -> float:
        """Time at which ``size`` bytes of a new file are written, s."""
        stripes = max(1.0, size / self.system.stripe_bytes)
        fan = min(self._width, math.ceil(stripes / self._grouped))
        first = int(self._random() * len(self.targets))
        pieces = max(1.0, stripes / fan / self._grouped)
        places = range(first, first + fan)
        return self._served(now, node, places, max(pieces * self._request_s, size / fan / self._write_rate), size, 1.0)

    def _served(
        self, now: float, node: Node, places: Iterable[int], seconds: float, size: float, requests: float
    ) -> float:
        done, count = now, len(self.targets)
        for place in places:
            done = max(done, self.targets[place % count].serve(now, seconds))
        if self.system.client_bytes_per_s:
            done = max(done, node.link.serve(now, size / self.system.client_bytes_per_s))
        return done + requests * self.system.request_latency_s


def stripes_of(system: SystemConfig, file_bytes: float) -> int:
    """Number of storage targets over which a file of this size (0: a large one) is spread."""
    most = min(system.stripe_count or system.targets, system.targets)
    return min(most, math.ceil(file_bytes / system.stripe_bytes)) if file_bytes else most
