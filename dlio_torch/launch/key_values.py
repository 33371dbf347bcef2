"""Values of the keys of ``launch``, read from text."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

from dlio_torch.config.fields import nearest
from dlio_torch.config.resources import is_name
from dlio_torch.errors import ConfigError
from dlio_torch.study import verb_keys
from dlio_torch.units import parse_duration, parse_size

_MOST = {"nodes": 100_000, "ranks_per_node": 4096, "cpus_per_rank": 4096, "gpus_per_node": 1024, "restarts": 1000}
_CLOCK = re.compile(r"(?:([0-9]{1,3})-)?([0-9]{1,4}):([0-5][0-9]):([0-5][0-9])")
_WORD = re.compile(r"[A-Za-z0-9_][\w.,:@+-]*", re.ASCII)


def wrong(key: str, text: str, problem: str, hint: str) -> ConfigError:
    """The error about one key."""
    return ConfigError(f"{key}={text} (command line): {problem}", hint=hint)


def choice(key: str, given: Mapping[str, str], choices: Sequence[str], of: str = "") -> str:
    """One of ``choices``; the first where the key is not given."""
    text = given.get(key, choices[0])
    if text not in choices:
        likely = nearest(text, choices)
        meant = f"did you mean {likely[0]}? " if likely else ""
        with_ = f" with {of}" if of else ""
        raise wrong(key, text, f"unknown {key}{with_}", f"{meant}choices are {', '.join(choices)}")
    return text


def number(key: str, given: Mapping[str, str], least: int) -> int | None:
    """A whole number, ``None`` where the key is not given."""
    text = given.get(key)
    if text is None:
        return None
    if not (text.isascii() and text.isdecimal() and len(text) < 8 and least <= int(text) <= _MOST[key]):
        raise wrong(key, text, f"expected a number from {least} to {_MOST[key]}", f"write {key}=2")
    return int(text)


def time_s(given: Mapping[str, str]) -> int:
    """The longest time of the job in seconds."""
    text = given.get("time")
    hint = "write time=00:30:00, time=30min or time=2h"
    if text is None:
        raise ConfigError("launch (command line): a job needs a time limit", hint=hint)
    match = _CLOCK.fullmatch(text)
    if match:
        days, hours, minutes, seconds = (int(part or 0) for part in match.groups())
        whole = ((days * 24 + hours) * 60 + minutes) * 60 + seconds
    else:
        # Schedulers disagree on "30" and "00:30": minutes, seconds, hours.
        if not text or text[-1].isdigit():
            raise wrong("time", text, "neither HH:MM:SS nor a duration with its unit", hint)
        whole = _seconds("time", text, hint)
    if not 0 < whole < 366 * 86400:
        raise wrong("time", text, "must be above 0 and below a year", hint)
    return whole


def grace(given: Mapping[str, str], whole_s: int) -> int:
    """Seconds before the end of a job of ``whole_s`` seconds at which a study is ended."""
    default = verb_keys.KEYS["launch"]["grace"].default
    text = given.get("grace", default)
    seconds = _seconds("grace", text, "write grace=2min")
    if not 0 < seconds < 65536:  # Slurm keeps it in 16 bits
        raise wrong("grace", text, "must be above 0 and below 18 h", "write grace=2min")
    if "grace" in given and seconds >= whole_s:
        raise wrong("grace", text, "not less than the time of the job", "write a longer time=, or a shorter grace=")
    return min(seconds, max(1, whole_s // 2))


def _seconds(key: str, text: str, hint: str) -> int:
    try:
        return round(parse_duration(text))
    except ValueError as error:
        raise wrong(key, text, str(error), hint) from None


def memory(given: Mapping[str, str]) -> int | None:
    """Bytes of a node, ``None`` where the key is not given."""
    text = given.get("memory")
    if text is None:
        return None
    try:
        size = parse_size(text)
    except ValueError as error:
        raise wrong("memory", text, str(error), "write memory=64GiB") from None
    if size < 1 << 20:
        raise wrong("memory", text, "less than 1 MiB", "write memory=64GiB")
    return size


def word(key: str, given: Mapping[str, str]) -> str | None:
    """A name that stands in a line for the scheduler."""
    text = given.get(key)
    if text is not None and not _WORD.fullmatch(text):
        raise wrong(key, text, "not one word of letters, digits and _ . , : @ + -", f"write {key}=NAME")
    return text


def job(given: Mapping[str, str]) -> str | None:
    """A name that every scheduler takes for a job."""
    text = given.get("job")
    if text is not None and not (is_name(text) and text[0].isalpha()):
        raise wrong("job", text, "not a usable name", "begin with a letter; use letters, digits, '_' and '-'")
    return text


def line(key: str, given: Mapping[str, str]) -> str | None:
    """One line of text."""
    text = given.get(key)
    if text is not None and (not text.strip() or not text.isprintable()):
        raise wrong(key, repr(text), "empty, or contains unprintable characters", "write one line of text")
    return text
