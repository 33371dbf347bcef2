"""Horovod's elastic mode: ranks join and leave, and the remaining ranks continue from the last commit.

``horovodrun --min-np`` starts it.  Horovod's driver looks for hosts every second, starts ranks on new hosts, and gives
all other ranks new numbers.  A collective in which a rank is lost raises an error, and the process goes on.  The
failure channel of the other communicators would end the process, so it is not opened here.
"""

from __future__ import annotations

import os
import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, TypeVar

from dlio_torch.config.schema import HorovodConfig
from dlio_torch.dist.base import FailureHook
from dlio_torch.dist.hvd import HorovodCommunicator
from dlio_torch.dist.hvd_settings import put_in_force
from dlio_torch.dist.ranked import first_line
from dlio_torch.errors import RunFailed

with warnings.catch_warnings():
    warnings.simplefilter("ignore")  # see hvd.py
    import horovod.torch as hvd
    from horovod.common.elastic import ObjectState
    from horovod.common.exceptions import HorovodInternalError as RankLost
    from horovod.common.exceptions import HostsUpdatedInterrupt as RanksChanged
    from horovod.torch.functions import broadcast_object

__all__ = ["ElasticCommunicator", "RankLost", "RanksChanged", "run_elastic"]

_Result = TypeVar("_Result")


class ElasticCommunicator(HorovodCommunicator):
    """The Communicator of the current ranks of an elastic run; Horovod has been initialised.

    If another rank ends, this one goes on: a collective raises ``RankLost``, and a commit ``RanksChanged`` after a
    change of hosts; :func:`run_elastic` handles both.  Hooks of ``on_failure`` are never called.

    Args:
        options: Horovod's settings, which are in force.
        settings: the settings in force, for reports.
    """

    def __init__(self, options: HorovodConfig, settings: Mapping[str, Any]) -> None:
        self._options = options
        self._timeline = False
        self._device = None  # NCCL's communicators do not survive the loss of a rank: host memory is used
        self.settings = settings
        self.rank, self.world_size, self.local_rank = hvd.rank(), hvd.size(), hvd.local_rank()
        self.detail = "gloo, elastic"
        self.on_failure: list[FailureHook] = []

    def fail(self, message: str, exit_code: int) -> None:
        """Do nothing: Horovod notices the end of the process, and the other ranks continue."""

    def close(self) -> None:
        """Do nothing: Horovod is shut down at the end of the elastic run."""

    @contextmanager
    def _collective(self, name: str) -> Iterator[None]:
        try:
            yield
        except (RankLost, RanksChanged):
            raise
        except RuntimeError as error:
            raise RunFailed(
                f"{name} over {self.world_size} ranks failed on rank {self.rank} ({self.detail}): {first_line(error)}"
            ) from error


def run_elastic(
    options: HorovodConfig,
    first: Mapping[str, Any],
    attempt: Callable[[ElasticCommunicator, ObjectState], _Result],
) -> _Result:
    """Call ``attempt`` with the current ranks, and again after each change of ranks, until it returns.

    Args:
        options: Horovod's settings.
        first: names and initial values of the state that the ranks share and that a commit keeps.
        attempt: goes on from the state; ``state.commit()``, called by all ranks at once, keeps it.

    Raises:
        RunFailed: the ranks cannot connect.
    """
    settings = put_in_force(options, False, os.environ)
    try:
        hvd.init()
    except (RuntimeError, ValueError) as error:
        raise RunFailed(f"the ranks could not connect through Horovod: {first_line(error)}") from error
    state = ObjectState(broadcast_object, hvd.rank, **first)
    try:
        done: _Result = hvd.elastic.run(lambda state: attempt(ElasticCommunicator(options, settings), state))(state)
    finally:
        hvd.shutdown()
    return done
