"""Preflight check: this machine can write checkpoints of the chosen layout."""

from __future__ import annotations

from dlio_torch.checkpoint.registry import layout_of
from dlio_torch.config.schema import Config


def check_checkpoints(config: Config) -> None:
    """Refuse a layout that this machine cannot write, for example because processes cannot be started.

    Args:
        config: the resolved configuration.

    Raises:
        PreconditionError: with the way out.
    """
    layout = layout_of(config.checkpoint.layout)
    if layout is not None:
        layout.check(config)
