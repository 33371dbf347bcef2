"""Errors of configuration checks: each names options with value and source, the problem, and the remedy."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from dlio_torch.config.schema import Config
from dlio_torch.errors import ConfigError

Fail = Callable[[list[str], str, str], None]
"""Raises an error about the values of options; called with their keys, the problem and the remedy."""


class ConfigCheck:
    """Builds the error messages of configuration checks.

    Args:
        config: the configuration that is checked.
        sources: where each value was set.

    Attributes:
        amount: the key that says how many samples there are.
    """

    def __init__(self, config: Config, sources: Mapping[str, str]) -> None:
        self.config = config
        self.sources = sources
        self.amount = "dataset.samples_per_file" if config.dataset.path is None else "dataset.path"

    def fail(self, keys: list[str], problem: str, remedy: str) -> None:
        """Raise an error about the values of ``keys``.

        Raises:
            ConfigError: always.
        """
        raise ConfigError(f"{' with '.join(self.text(key) for key in keys)}: {problem}", hint=remedy)

    def text(self, key: str) -> str:
        """Formats an option as ``key=value (source)``."""
        value: Any = self.config
        for part in key.split("."):
            value = value[int(part)] if isinstance(value, list) else getattr(value, part)
        if isinstance(value, bool) or value is None:
            value = {True: "true", False: "false", None: "null"}[value]
        elif isinstance(value, list) and not all(isinstance(item, (int, str)) for item in value):
            value = f"[{len(value)} elements]"
        source = self.sources.get(key) or self._source_of_element(key)
        return f"{key}={value} ({source})" if source else f"{key}={value}"

    def _source_of_element(self, key: str) -> str | None:
        """Source of the first element of a list, which has no source itself."""
        return next((source for name, source in self.sources.items() if name.startswith(f"{key}.0.")), None)
