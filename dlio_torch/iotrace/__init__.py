"""Records, imports, analyses and compares the I/O calls of programs."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from dlio_torch.iotrace.recorder.recorded_block import record

__all__ = ["record"]


def __getattr__(name: str) -> Any:
    """``record``, imported at its first use: programs that only read recordings need no recorder."""
    if name == "record":
        from dlio_torch.iotrace.recorder.recorded_block import record

        return record
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
