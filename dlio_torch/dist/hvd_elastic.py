"""Horovod's elastic mode: ranks come and go, and those that are there go on from what was committed.

``horovodrun --min-np`` starts it.  Horovod's driver finds hosts anew every second, starts ranks on new ones, and gives
all others new numbers; a collective in which a rank is lost ends with an error, not with the process.  That is the
opposite of the failure channel of the other communicators, which is not opened here.
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
    """The Communicator of the ranks that are there now; Horovod has been initialised.

    Another rank's end does not end this one: a collective raises ``RankLost``, and a commit ``RanksChanged`` where
    hosts have come or gone; :func:`run_elastic` waits for both.  Hooks of ``on_failure`` are never called.

    Args:
        options: Horovod's settings, which are in force.
        settings: what is in force, for reports.
    """

    def __init__(self, options: HorovodConfig, settings: Mapping[str, Any]) -> None:
        self._options = options
        self._timeline = False
        self._device = None  # NCCL's communicators do not outlive the loss of a rank: the host's memory is used
        self.settings = settings
        self.rank, self.world_size, self.local_rank = hvd.rank(), hvd.size(), hvd.local_rank()
        self.detail = "gloo, elastic"
        self.on_failure: list[FailureHook] = []

    def fail(self, message: str, exit_code: int) -> None:
        """Nothing: Horovod sees the process end, and the others go on without it."""

    def close(self) -> None:
        """Nothing: Horovod is shut down where the elastic run ends."""

    @contextmanager
    def _collective(self, what: str) -> Iterator[None]:
        try:
            yield
        except (RankLost, RanksChanged):
            raise
        except RuntimeError as error:
            raise RunFailed(
                f"{what} over {self.world_size} ranks failed on rank {self.rank} ({self.detail}): {first_line(error)}"
            ) from error


def run_elastic(
    options: HorovodConfig,
    first: Mapping[str, Any],
    attempt: Callable[[ElasticCommunicator, ObjectState], _Result],
) -> _Result:
    """Call ``attempt`` again and again, each time with the ranks that are there then, until it returns.

    Args:
        options: Horovod's settings.
        first: names and values of the state that ranks have in common and that a commit keeps.
        attempt: works on from the state; ``state.commit()``, made by all ranks at once, keeps it.

    Raises:
        RunFailed: the ranks do not find each other.
    """
    settings = put_in_force(options, False, os.environ)
    try:
        hvd.init()
    except (RuntimeError, ValueError) as error:
        raise RunFailed(f"the ranks did not find each other through Horovod: {first_line(error)}") from error
    state = ObjectState(broadcast_object, hvd.rank, **first)
    try:
        done: _Result = hvd.elastic.run(lambda state: attempt(ElasticCommunicator(options, settings), state))(state)
    finally:
        hvd.shutdown()
    return done
