"""Templates of job scripts, ``conf/launch/``: shell files with places for values.

``%{name}`` is replaced by a value: as it stands in lines that begin with ``#``, which schedulers read, and quoted
for the shell in all others, several words where it is a list.  A line with a value that is not set is left out.
``%%{`` stands for ``%{``.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from dlio_torch.config.fields import nearest
from dlio_torch.config.resources import Resources
from dlio_torch.errors import ConfigError

_PLACE = re.compile(r"%%\{|%\{(\w*)\}?")


@dataclass(frozen=True)
class Shell:
    """Text that is shell already: lines of a part, or a word with variables in it."""

    text: str


Value = str | int | tuple[str, ...] | Shell | None


def find(name: str, places: Resources, asker: str) -> tuple[Path, str]:
    """A template and its text.

    Args:
        name: of ``conf/launch/<name>.sh`` in the user's folders or the shipped one; or a path, which contains a slash
            or ends in ``.sh``.
        places: folders to search.
        asker: start of messages: the key or template that names it.

    Raises:
        ConfigError: there is none, or it cannot be read.
    """
    is_path = name.endswith(".sh") or name.startswith(("/", "./", "../", "~"))
    try:
        if is_path:
            path: Path | None = places.cwd / Path(name).expanduser()
        else:
            tried = [root.folder / "conf" / "launch" / f"{name}.sh" for root in places.roots]
            path = next((path_tried for path_tried in tried if path_tried.is_file()), None)
        if path is None:
            raise ConfigError(f"{asker}: no such template", hint="name a file: template=./mine.sh")
        return path, path.read_bytes().decode("utf-8")
    except (OSError, ValueError, RuntimeError) as error:  # not UTF-8, a NUL, an unknown ~user
        raise ConfigError(f"{asker}: cannot be read: {error}", hint="name a shell file") from None


def fill(text: str, values: Mapping[str, Value], label: str) -> str:
    """A template with its values.

    Args:
        text: text of the template.
        values: by name.
        label: name of its file, for messages.

    Raises:
        ConfigError: a place is malformed or names no value, or a value does not fit into a line for the scheduler.
    """
    lines = []
    for number, line in enumerate(text.splitlines(), 1):
        filled = _line(line, values, f"{label}:{number}")
        if filled is not None:
            lines.append(filled)
    return "\n".join(lines) + "\n"


def _line(line: str, values: Mapping[str, Value], label: str) -> str | None:
    comment = line.lstrip().startswith("#")
    absent = False

    def value_of(match: re.Match[str]) -> str:
        nonlocal absent
        if match.group() == "%%{":
            return "%{"
        name = match.group(1)
        if name not in values or not match.group().endswith("}"):
            close = nearest(name, list(values))
            meant = f"did you mean {close[0]}? " if close else ""
            raise ConfigError(
                f"{label}: {match.group()} is not a value of a job script",
                hint=f"{meant}values are {', '.join(values)}",
            )
        value = values[name]
        absent = absent or value is None
        return _said(value, f"{label}: {name}") if comment else _quoted(value)

    filled = _PLACE.sub(value_of, line)
    return None if absent else filled


def _said(value: Value, asker: str) -> str:
    text = value.text if isinstance(value, Shell) else shlex.join(value) if isinstance(value, tuple) else str(value)
    if not text.isprintable() and text:
        raise ConfigError(
            f"{asker}={text!r}: cannot stand in a line for the scheduler", hint="use printable characters"
        )
    return text


def _quoted(value: Value) -> str:
    if isinstance(value, Shell):
        return value.text
    if isinstance(value, tuple):
        return shlex.join(value)
    return shlex.quote(str(value))


def with_variables(text: str) -> Shell:
    """A word of the shell: ``$NAME`` and ``${NAME}`` are values that the job has, all else is quoted.

    A variable that the job lacks ends it with a message.
    """
    parts = re.split(r"\$(?:([A-Za-z_]\w*)|\{([A-Za-z_]\w*)\})", text)
    word = ""
    for i in range(0, len(parts), 3):
        word += shlex.quote(parts[i]) if parts[i] else ""
        if i + 1 < len(parts):
            word += f'"${{{parts[i + 1] or parts[i + 2]}:?is not set in this job}}"'
    return Shell(word)
