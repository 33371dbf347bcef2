"""Arguments of the studies' verbs: keys that are none, and axes that would be lost."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

from dlio_torch.config.fields import lookup, nearest
from dlio_torch.config.layers import COMMAND_LINE, unknown
from dlio_torch.errors import ConfigError
from dlio_torch.sweep import keys
from dlio_torch.sweep.axes import expand


def check_keys(given: Mapping[str, str], verb: str, labels: Collection[str] = ()) -> None:
    """Refuse keys that are neither options of a run nor keys of ``verb``.

    Args:
        given: key -> value of the command line.
        verb: sweep, tune or headspace.
        labels: axes of a study file that are no options.

    Raises:
        ConfigError: names the verb that the key belongs to, or the key that is meant.
    """
    for key, text in given.items():
        if key in keys.KEYS[verb] or key in labels or lookup(key.split(".")) is not None:
            continue
        problem = f"{key}={text} ({COMMAND_LINE})"
        if verbs := keys.verbs_of(key):
            raise ConfigError(f"{problem}: not a key of {verb}", hint=f"it belongs to {', '.join(verbs)}")
        likely = keys.meant(key, verb) or "".join(nearest(key, list(keys.KEYS[verb]), cutoff=keys.ALIKE))
        if likely:
            raise ConfigError(f"{problem}: unknown key of {verb}", hint=f"did you mean {likely}? see explain {likely}")
        raise unknown(tuple(key.split(".")), text, COMMAND_LINE)


def refuse_second_axes(pairs: Sequence[tuple[str, str]]) -> None:
    """A key that is given again takes the place of the first, which must not make an axis disappear.

    Raises:
        ConfigError: it would.
    """
    first: dict[str, str] = {}
    for key, text in pairs:
        if key in first and max(len(expand(key, one)) for one in (first[key], text)) > 1:
            raise ConfigError(
                f"{key}={first[key]} and {key}={text} ({COMMAND_LINE}): given twice",
                hint=f"write all values in one argument: {key}=a,b,c",
            )
        first[key] = text
