"""Emulated compute for a training loop of one's own."""

from __future__ import annotations

import os
import threading
from typing import Literal

from dlio_torch.compute.emulate import Emulator, make_emulator
from dlio_torch.config.schema import ComputeConfig
from dlio_torch.errors import ConfigError

_LONGEST_S = 366 * 86400.0
_MODES = ("sleep", "spin", "cuda")
_emulators = threading.local()  # an emulator belongs to one thread, and not to a forked process


def emulated_step(seconds: float, mode: Literal["sleep", "spin", "cuda"] = "sleep") -> float:
    """Takes as long as the compute of a training step, without holding the interpreter lock.

    Args:
        seconds: duration.
        mode: ``sleep`` leaves the cores to others; ``spin`` keeps a core busy; ``cuda`` keeps the GPU busy.

    Returns:
        The achieved duration in seconds, never less than ``seconds``.

    Raises:
        ConfigError: ``seconds`` is not a duration, or the mode is unknown.
        PreconditionError: mode ``cuda``, and torch finds no GPU.
    """
    if mode not in _MODES:
        raise ConfigError(f"emulated_step: mode={mode!r} is not a known mode", hint=f"use one of {', '.join(_MODES)}")
    try:
        is_duration = 0 <= seconds < _LONGEST_S
    except (TypeError, ValueError, RuntimeError):  # also of an array or a tensor with several elements
        is_duration = False
    if not is_duration:
        raise ConfigError(
            f"emulated_step: seconds={seconds!r} is not a duration", hint="give a number of 0 or more seconds"
        )
    return _emulator(mode).spend(round(float(seconds) * 1e9)) / 1e9


def _emulator(mode: Literal["sleep", "spin", "cuda"]) -> Emulator:
    """The emulator of this thread; calibrated at its first use."""
    if getattr(_emulators, "pid", None) != os.getpid():
        _emulators.pid, _emulators.by_mode = os.getpid(), {}
    by_mode: dict[str, Emulator] = _emulators.by_mode
    if mode not in by_mode:
        by_mode[mode] = make_emulator(ComputeConfig(mode=mode, step_s=1.0), seed=0, rank=0)
    return by_mode[mode]
