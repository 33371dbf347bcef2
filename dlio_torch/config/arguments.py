"""Arguments of the command line: ``key=value``."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from dlio_torch.config.fields import lookup, suggest
from dlio_torch.config.layers import show
from dlio_torch.errors import ConfigError

Argument = tuple[str, str]
"""Key and value, as text."""


def split_argument(argument: str) -> tuple[str, str]:
    """Splits a ``key=value`` argument into key and value.

    Raises:
        ConfigError: no '=', or no key before it.
    """
    try:
        argument.encode("utf-8")
    except UnicodeEncodeError:  # bytes that the terminal's encoding does not know arrive as lone surrogates
        raise ConfigError(
            f"argument {argument!r} (command line): not UTF-8 text",
            hint="set the terminal's encoding to UTF-8, or type the argument with ASCII characters",
        ) from None
    key, equals, value = argument.partition("=")
    key = key.strip()
    if equals and key:
        return key, value
    if equals:
        raise ConfigError(f"argument {argument!r} (command line): no key before '='", hint="write group.option=value")
    option = lookup(key.split("."))
    if option is not None and key:
        hint = f"write {key}=<{option.type_text}>" if option.kind != "group" else f"write {key}.<option>=<value>"
    elif option is None and not key.startswith("-") and "." in key:
        hint = suggest(key.split("."))
    else:
        hint = "write key=value, for example recipe=cosmic_tagger or loader.num_workers=4"
    raise ConfigError(f"argument {argument!r} (command line): expected key=value", hint=hint)


def refuse_repeated(arguments: Sequence[Argument], hint: str = "keep one of the two") -> None:
    """Raise if a key is given twice.

    Args:
        arguments: keys and values.
        hint: the remedy.

    Raises:
        ConfigError: it is; names both values.
    """
    first: dict[str, str] = {}
    for key, value in arguments:
        if key in first:
            raise ConfigError(
                f"{key}={show(value)} (command line): the key is given twice, first as {key}={show(first[key])}",
                hint=hint,
            )
        first[key] = value


def keys_of(arguments: Iterable[str]) -> set[str]:
    """The keys of ``key=value`` arguments.

    Raises:
        ConfigError: see :func:`split_argument`.
    """
    return {split_argument(argument)[0] for argument in arguments}
