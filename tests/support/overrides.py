"""Arguments of a test with changes: the last of each key counts, since the command line takes each key once."""

from __future__ import annotations


def overridden(*arguments: str) -> list[str]:
    """The arguments, of each ``key=value`` the last; verbs and flags stay."""
    last: dict[str, str] = {}
    for argument in arguments:
        last[argument.partition("=")[0] if not argument.startswith("-") else argument] = argument
    return list(last.values())
