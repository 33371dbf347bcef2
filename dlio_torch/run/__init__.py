"""The composition root: configuration -> data -> training -> run directory and report.

Everything is put together here and nowhere else; the parts below know nothing of each other's construction.
Every rank goes through the phases of a run (``phases.py``)::

    data.py      where the samples lie; generating them
    training.py  page cache, loaders, emulator, checkpoints and trainer: what is measured
    outcome.py   what all ranks have found, on rank 0
"""

from __future__ import annotations

from collections.abc import Sequence

from dlio_torch.config.compose import Composed
from dlio_torch.dist.hvd_settings import is_elastic
from dlio_torch.dist.registry import check_horovod, connect
from dlio_torch.errors import DlioError
from dlio_torch.run.alike import same_on_all
from dlio_torch.run.ending import Ending
from dlio_torch.run.phases import do
from dlio_torch.run.setting import Setting
from dlio_torch.rundir import say_where

_INTERRUPTED = 130


def run(composed: Composed, phases: Sequence[str] = ("generate", "train")) -> int:
    """Do the phases on all ranks; returns the exit code.

    Args:
        composed: the configuration and where it came from.
        phases: ``generate``, ``train`` or both.

    Raises:
        DlioError: the same exit code on every rank.
    """
    if is_elastic():
        check_horovod()
        from dlio_torch.run.elastic import run_elastically

        return run_elastically(composed, phases)
    comm = connect(composed.config.dist, timeline=composed.config.trace.horovod and "train" in phases)
    ending = Ending(comm)
    try:
        same_on_all(composed.config, comm)
        missed = do(Setting(composed, comm, ending), phases)
    except DlioError as error:
        ending.fail(str(error), error.exit_code)
        raise
    except KeyboardInterrupt as error:
        code = getattr(error, "exit_code", _INTERRUPTED)
        ending.fail(getattr(error, "word", "interrupted"), code)
        if ending.record is not None:
            say_where(error, ending.record)
        raise
    except BaseException as error:
        ending.fail(f"{type(error).__name__}: {error}", 1)
        raise
    ending.done(0 if missed is None else missed.exit_code)
    comm.close()
    if missed is None:
        return 0
    if comm.rank == 0:
        raise missed
    return missed.exit_code  # rank 0 says what all ranks know
