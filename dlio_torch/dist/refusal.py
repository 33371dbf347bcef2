"""A rank that does not begin, because of its arguments or its machine, tells the others, which would wait for it."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from dataclasses import replace
from typing import get_args

from dlio_torch.config.compose import split_argument
from dlio_torch.config.schema import DistConfig
from dlio_torch.dist import leave
from dlio_torch.dist.hvd_settings import is_elastic
from dlio_torch.dist.launcher import Launch
from dlio_torch.dist.registry import Backend, connect
from dlio_torch.errors import ConfigError, DlioError

_BACKENDS = tuple(name for name in get_args(Backend) if name != "single")  # beside what the launcher suggests
_MEET_S = 60.0  # another rank may have failed before it could meet anybody
_PATIENCE_S = 15.0  # without the others, after which the rank speaks for itself


def refuse(error: DlioError, settings: Sequence[str], launch: Launch) -> None:
    """Meet the other ranks and end them with this error; without them, say it here.

    Args:
        error: why this rank does not begin.
        settings: ``key=value`` arguments, of which those of ``dist`` are looked at.
        launch: how this process was started.
    """
    if is_elastic():
        return  # the others go on without it
    # Of what all ranks may have in common, the command line lets rank 0 alone speak.
    silent = launch.rank != 0 and isinstance(error, ConfigError)
    alone = threading.Timer(_PATIENCE_S, leave.say, [f"dlio_torch: rank {launch.rank}: error: {error}"])
    alone.daemon = True
    if silent:
        alone.start()
    backends = [text for key, text in map(split_argument, settings) if key == "dist.backend"]
    asked = next((DistConfig(backend=name) for name in _BACKENDS if [name] == backends[-1:]), DistConfig())
    try:
        comm = connect(replace(asked, timeout_s=_MEET_S), launch)
    except (DlioError, ImportError):
        if silent and not alone.finished.is_set():
            alone.function(*alone.args)
        return
    finally:
        alone.cancel()
    comm.fail(str(error), error.exit_code)
