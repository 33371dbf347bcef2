"""Checks of paths on the command line: paths must be local, and URLs are refused before any file is touched.

Options of a run are checked with the rest of the configuration (:mod:`dlio_torch.config.validate_storage`).
"""

from __future__ import annotations

from collections.abc import Iterator

from dlio_torch.commands.command_line import FLAGS, PATH_WORDS, Command
from dlio_torch.errors import ConfigError
from dlio_torch.storage.registry import no_local_path
from dlio_torch.study.verb_keys import KEYS

_KEYS = {"recipe"} | {key for keys in KEYS.values() for key, about in keys.items() if about.path}


def check_paths(command: Command) -> None:
    """Refuse URLs in arguments that must be local paths.

    Raises:
        ConfigError: naming the flag or key, its value and what to write.
        DlioError: the storage of a scheme cannot be imported.
    """
    for argument, path in _paths(command):
        if (refusal := no_local_path(path)) is not None:
            raise ConfigError(f"{argument} (command line): {refusal[0]}", hint=refusal[1])


def _paths(command: Command) -> Iterator[tuple[str, str]]:
    """Yields each argument that contains a path, and the path."""
    for flag, value in command.values:
        if FLAGS[flag].path:
            yield f"{flag} {value}", _unnamed(value)
    for word in command.words if command.verb in PATH_WORDS else ():
        yield f"{command.verb} {word}", word
    for setting in command.settings:
        key, _, value = setting.partition("=")
        if key.strip() in _KEYS or command.verb == "report":
            yield setting, value.strip()


def _unnamed(value: str) -> str:
    """Returns the path in a value of the form ``PATH`` or ``NAME=PATH``."""
    name, equals, path = value.partition("=")
    return path if equals and name.isidentifier() else value
