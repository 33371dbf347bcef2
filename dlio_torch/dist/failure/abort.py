"""Abort before the start: a rank whose arguments or machine are wrong ends the ranks that would wait for it.

A launcher ends the others by a signal, without a reason, or lets them wait for the rendezvous to time out.  So this
rank connects first and fails then: every rank ends with its exit code, and one line says why.
"""

from __future__ import annotations

import threading
from collections.abc import Sequence
from dataclasses import replace
from typing import get_args

from dlio_torch.config.arguments import split_argument
from dlio_torch.config.schema import DistConfig
from dlio_torch.dist.hvd_settings import is_elastic
from dlio_torch.dist.launcher import Launch
from dlio_torch.dist.registry import Backend, connect
from dlio_torch.errors import ConfigError, DlioError
from dlio_torch.supervision.process_exit import print_line

_BACKENDS = tuple(name for name in get_args(Backend) if name != "single")  # besides the launcher's own
_CONNECT_S = 60.0  # another rank may have failed before it could connect
_PATIENCE_S = 15.0  # time for the other ranks to connect, before this rank prints its error itself


def abort_start(error: DlioError, settings: Sequence[str], launch: Launch) -> None:
    """Connect with the other ranks and end them with this error; print it here if they cannot be reached.

    Args:
        error: why this rank does not start.
        settings: ``key=value`` arguments; those of ``dist`` are read.
        launch: how this process was started.
    """
    if is_elastic():
        return  # the others go on without it
    # The command line lets rank 0 alone print an error of the configuration, which all ranks may share.
    silent = launch.rank != 0 and isinstance(error, ConfigError)
    fallback = threading.Timer(_PATIENCE_S, print_line, [f"dlio_torch: rank {launch.rank}: error: {error}"])
    fallback.daemon = True
    if silent:
        fallback.start()
    backends = [text for key, text in map(split_argument, settings) if key == "dist.backend"]
    config = next((DistConfig(backend=name) for name in _BACKENDS if [name] == backends[-1:]), DistConfig())
    try:
        comm = connect(replace(config, timeout_s=_CONNECT_S), launch)
    except (DlioError, ImportError):
        if silent and not fallback.finished.is_set():
            fallback.function(*fallback.args)
        return
    finally:
        fallback.cancel()
    comm.fail(str(error), error.exit_code)
