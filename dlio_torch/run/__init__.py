"""The composition root: configuration -> data -> training -> run directory and report.

Everything is put together here and nowhere else; the parts below know nothing of each other's construction.
Every rank goes through the phases of a run (``phases.py``)::

    data.py      where the samples lie; generating them
    training.py  page cache, loaders, emulator, checkpoints and trainer: what is measured
    outcome.py   what all ranks have found, on rank 0
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from dlio_torch.config.compose import Composed
from dlio_torch.config.emit import as_dict
from dlio_torch.config.schema import Config
from dlio_torch.dist.base import Communicator
from dlio_torch.dist.registry import connect
from dlio_torch.errors import ConfigError, DlioError
from dlio_torch.run.phases import do
from dlio_torch.run.setting import Setting

_INTERRUPTED = 130


def run(composed: Composed, phases: Sequence[str] = ("generate", "train")) -> int:
    """Do the phases on all ranks; returns the exit code.

    Args:
        composed: the configuration and where it came from.
        phases: ``generate``, ``train`` or both.

    Raises:
        DlioError: the same exit code on every rank.
    """
    comm = connect(composed.config.dist, timeline=composed.config.trace.horovod and "train" in phases)
    try:
        _same_configuration(composed.config, comm)
        missed = do(Setting(composed, comm), phases)
    except DlioError as error:
        comm.fail(str(error), error.exit_code)
        raise
    except KeyboardInterrupt as error:
        code = getattr(error, "exit_code", _INTERRUPTED)
        comm.fail("interrupted" if code == _INTERRUPTED else "terminated", code)
        raise
    except BaseException as error:
        comm.fail(f"{type(error).__name__}: {error}", 1)
        raise
    comm.close()
    if missed is None:
        return 0
    if comm.rank == 0:
        raise missed
    return missed.exit_code  # rank 0 says what all ranks know


def _same_configuration(config: Config, comm: Communicator) -> None:
    """Ranks with different options would wait for each other for ever."""
    first = comm.broadcast_object(_flat(as_dict(config)))
    mine = _flat(as_dict(config))
    different = sorted(key for key in first.keys() | mine.keys() if first.get(key) != mine.get(key))
    if different:
        key = different[0]
        raise ConfigError(
            f"rank {comm.rank} was started with {key}={mine.get(key)!r}, rank 0 with {first.get(key)!r}",
            hint="start all ranks with the same arguments and recipe",
        )


def _flat(value: Any, prefix: str = "") -> dict[str, Any]:
    if isinstance(value, dict):
        return {
            k: v for name, item in value.items() for k, v in _flat(item, f"{prefix}.{name}" if prefix else name).items()
        }
    return {prefix: value}
