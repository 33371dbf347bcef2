"""Horovod's own settings: read from options and environment variables, checked, and handed to Horovod.

Horovod reads its settings from variables ``HOROVOD_...`` when it is initialised, and has no call that
returns them.  So the settings in force are read from the same variables.  Written for 0.28.1, whose defaults stand
here (``BackgroundThreadLoop`` in its ``operations.cc``).
"""

from __future__ import annotations

import math
import os
from collections.abc import Mapping, MutableMapping
from dataclasses import dataclass
from typing import Any

from dlio_torch.config.schema import HorovodConfig
from dlio_torch.errors import ConfigError

TIMELINE = "HOROVOD_TIMELINE"
_LATER = "DYNAMIC"
_LONGEST_CYCLE_S = 1.0
"""Value that requests a timeline whose file is named only after the initialisation; all ranks must set it."""


@dataclass(frozen=True)
class _Setting:
    """An option, its variable, Horovod's default in the option's unit, and the factor to the variable's unit."""

    option: str
    variable: str
    default: float
    factor: int = 1

    def written(self, value: float) -> str:
        return f"{value * self.factor:.15g}"

    def read(self, environ: Mapping[str, str]) -> float | None:
        """Reads the value in the environment strictly; Horovod itself would read "64MB" as 64, and "many" as 0."""
        text = environ.get(self.variable)
        if text is None:
            return None
        try:
            # Whole numbers stay whole; only the cycle time may be a fraction.
            value = float(text) / self.factor if self.factor > 1 else int(text)
            if not math.isfinite(value) or value < 0:
                raise ValueError
        except ValueError:
            kind = "number" if self.factor > 1 else "whole number"
            raise ConfigError(
                f"environment variable {self.variable}={text!r} is not a {kind} of at least 0",
                hint=f"unset the variable, and set dist.horovod.{self.option}",
            ) from None
        return value


_SETTINGS = (
    _Setting("fusion_threshold_bytes", "HOROVOD_FUSION_THRESHOLD", 128 * 2**20),
    _Setting("cycle_time_s", "HOROVOD_CYCLE_TIME", 0.001, 1000),
    _Setting("cache_capacity", "HOROVOD_CACHE_CAPACITY", 1024),
)


def put_in_force(options: HorovodConfig, timeline: bool, environ: MutableMapping[str, str]) -> dict[str, Any]:
    """Hand the options to Horovod; to be called before ``hvd.init()``.

    Args:
        options: ``dist.horovod``.
        timeline: whether a timeline will be started.
        environ: the variables that Horovod will read; changed here.

    Returns:
        The settings in force, by the names of the options; ``None`` for what Horovod's autotuning
        changes as it goes.  Under ``set_by``, for each: ``option``, its variable, ``default`` or
        ``autotune``.

    Raises:
        ConfigError: a variable contradicts an option, or is not a number; or a cycle is too long.
    """
    values: dict[str, Any] = {}
    by: dict[str, str] = {}
    autotune = environ.get("HOROVOD_AUTOTUNE", "0").strip() not in ("", "0")
    if options.cycle_time_s is not None and options.cycle_time_s > _LONGEST_CYCLE_S:
        raise ConfigError(
            f"dist.horovod.cycle_time_s={options.cycle_time_s:g}: every collective waits for the end of a cycle, "
            "so the cycle is too long",
            hint=f"set {_LONGEST_CYCLE_S:g} s or less; Horovod's default is 1 ms",
        )
    requested = (options.fusion_threshold_bytes, options.cycle_time_s, options.cache_capacity)
    for setting, option in zip(_SETTINGS, requested, strict=True):
        variable = setting.read(environ)
        if option is not None and variable is not None and not math.isclose(option, variable):
            raise ConfigError(
                f"dist.horovod.{setting.option}={option} contradicts the environment variable "
                f"{setting.variable}={environ[setting.variable]}",
                hint=f"unset the variable (options of horovodrun set it), or leave dist.horovod.{setting.option} out",
            )
        if option is not None:
            environ[setting.variable] = setting.written(option)
            values[setting.option], by[setting.option] = option, "option"
        elif variable is not None:
            values[setting.option], by[setting.option] = variable, setting.variable
        elif autotune:
            values[setting.option], by[setting.option] = None, "autotune"
        else:
            values[setting.option], by[setting.option] = setting.default, "default"
    if timeline:
        if environ.get(TIMELINE, _LATER) != _LATER:
            raise ConfigError(
                f"trace.horovod=true contradicts the environment variable {TIMELINE}={environ[TIMELINE]}",
                hint="unset the variable (options of horovodrun set it); the timeline is written to the run directory",
            )
        environ[TIMELINE] = _LATER
    return values | {"groups": options.groups, "compression": options.compression, "set_by": by}


def check_no_horovod_options(options: HorovodConfig, timeline: bool, backend: str) -> None:
    """Refuse options that need Horovod if ``backend`` connects the ranks.

    One process has no gradient to reduce: it accepts the settings of a recipe and ignores them.

    Raises:
        ConfigError: names the first of these options.
    """
    usual = HorovodConfig()
    changed = [name for name in vars(usual) if getattr(options, name) != getattr(usual, name)]
    needed = [f"dist.horovod.{name}={getattr(options, name)}" for name in changed if backend != "single"]
    if timeline:
        needed.append("trace.horovod=true")
    if needed:
        ranks = "a run of one process does not use it" if backend == "single" else f"the ranks use {backend}"
        raise ConfigError(
            f"{needed[0]} needs Horovod, but {ranks}",
            hint="start the run with horovodrun -np <n> python -m dlio_torch, or leave the option out",
        )


def is_elastic(environ: Mapping[str, str] = os.environ) -> bool:
    """Whether horovodrun started this process in its elastic mode, in which ranks join and leave."""
    return environ.get("HOROVOD_ELASTIC", "0").strip() not in ("", "0")
