"""Options that benchmarks of loaders share: names and sizes, separated by commas."""

from __future__ import annotations

from argparse import Namespace
from collections.abc import Collection

from dlio_torch.errors import ConfigError

_QUICK = "40000"
_ITEM = 4  # bytes of a float32


def chosen(option: str, text: str, names: Collection[str]) -> list[str]:
    """The names of an option.

    Raises:
        ConfigError: there is no such name.
    """
    found = text.split(",")
    for name in found:
        if name not in names:
            raise ConfigError(f"{option}={text}: there is no {name!r}", hint=f"known are {', '.join(names)}")
    return found


def sizes_of(arguments: Namespace, usual: str) -> list[int]:
    """Bytes of samples: those of ``--sizes``, of a short round with ``--quick``, or the usual ones.

    Raises:
        ConfigError: one is not the size of some float32 numbers.
    """
    text: str = arguments.sizes or (_QUICK if arguments.quick else usual)
    sizes = [int(size) if size.isascii() and size.isdigit() else 0 for size in text.split(",")]
    if any(size < 1 or size % _ITEM for size in sizes):
        raise ConfigError(
            f"--sizes={text}: a size is a positive number of bytes, a multiple of {_ITEM}",
            hint=f"the usual ones are {usual}",
        )
    return sizes
