"""Emulated compute for a training loop of one's own."""

from __future__ import annotations

import functools
from typing import Literal

from dlio_torch.compute.emulate import Emulator, make_emulator
from dlio_torch.config.schema import ComputeConfig
from dlio_torch.errors import ConfigError

_MODES = ("sleep", "spin", "cuda")


def emulated_step(seconds: float, mode: Literal["sleep", "spin", "cuda"] = "sleep") -> float:
    """Takes as long as the compute of a training step, without holding the interpreter lock.

    Args:
        seconds: duration.
        mode: ``sleep`` leaves the cores to others; ``spin`` keeps a core busy; ``cuda`` keeps the GPU busy.

    Returns:
        The achieved duration in seconds, never less than ``seconds``.

    Raises:
        ConfigError: a negative or infinite duration, or an unknown mode.
        PreconditionError: mode ``cuda``, and torch finds no GPU.
    """
    if mode not in _MODES:
        raise ConfigError(f"emulated_step: mode={mode!r} is not a known mode", hint=f"use one of {', '.join(_MODES)}")
    if not 0 <= seconds < float("inf"):
        raise ConfigError(f"emulated_step: seconds={seconds} is not a duration", hint="give 0 or more seconds")
    return _emulator(mode).spend(round(seconds * 1e9)) / 1e9


@functools.cache
def _emulator(mode: Literal["sleep", "spin", "cuda"]) -> Emulator:
    return make_emulator(ComputeConfig(mode=mode, step_s=1.0), seed=0, rank=0)
