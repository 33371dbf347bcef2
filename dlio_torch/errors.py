"""Classes of errors: every failure that a user can cause or meet is an instance of one of them.

Each error is one line of text and a process exit code.  The command line prints
``dlio_torch: error: <message>; <hint>`` and exits with that code on every rank; a traceback
therefore always means a bug in the tool itself.
"""

from __future__ import annotations

import os

DEBUG_VARIABLE = "DLIO_TORCH_DEBUG"
"""Name of the environment variable that shows tracebacks if its value is 1."""
LONGEST = 2000
"""Maximum number of characters of a message; a longer message loses its middle."""
_LONGEST_WORD = 500


def debugging() -> bool:
    """Whether the user requested tracebacks."""
    return os.environ.get(DEBUG_VARIABLE) == "1"


def harmless(text: str) -> str:
    r"""Escapes control characters as ``\x1b``, because names in hostile files must not command a terminal."""
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode("ascii") for c in text)


class DlioError(Exception):
    """Base of all errors that are shown to the user as one line.

    Args:
        message: what is wrong; names the key or file and the value.
        hint: what to do about it; appended after a semicolon.

    Attributes:
        leave_at_once: a library is left in a state in which its destructors may crash: the program is to end without
            them.
    """

    exit_code: int = 1
    leave_at_once: bool = False

    def __init__(self, message: str, *, hint: str | None = None) -> None:
        super().__init__(message, hint)
        self.message = message
        self.hint = hint

    def __str__(self) -> str:
        text = f"{self.message}; {self.hint}" if self.hint else self.message
        return one_line(text)

    def __reduce__(self) -> tuple[object, ...]:
        # Errors cross process borders (loader workers, ranks), where the default rebuilds an
        # exception from its positional arguments alone.
        return (_rebuild, (type(self), self.message, self.hint))


def one_line(text: str) -> str:
    """Formats ``text`` as one line for a terminal: control characters are escaped, long texts are cut.

    Values of the user, and names of files of others, are part of messages; none of them may move the cursor,
    change colours, or fill the screen.
    """
    words = (_cut(word, _LONGEST_WORD, "[...]") for word in text.split())  # a value, say: what is said of it stays
    return _cut(harmless(" ".join(words)), LONGEST, " [...] ")


def _cut(text: str, most: int, sign: str) -> str:
    return text if len(text) <= most else f"{text[: most // 2]}{sign}{text[-most // 2 :]}"


def _rebuild(cls: type[DlioError], message: str, hint: str | None) -> DlioError:
    return cls(message, hint=hint)


class RunFailed(DlioError):
    """The run started and could not be completed (exit code 1)."""

    exit_code = 1


class ConfigError(DlioError):
    """The configuration is wrong: key, value, combination, recipe (exit code 2)."""

    exit_code = 2


class PreconditionError(DlioError):
    """The configuration is right, but the machine is not ready: space, data, package (exit code 3)."""

    exit_code = 3


class DataError(PreconditionError):
    """A data file is missing, damaged, or of another layout (exit code 3)."""


class MissingPackageError(PreconditionError):
    """An optional package is needed (exit code 3); the hint says which extra installs it."""


class ThresholdMissed(DlioError):
    """A threshold that the user set was missed (exit code 4)."""

    exit_code = 4


class RankFailed(DlioError):
    """Another rank failed; carries that rank's message and exit code to this one."""

    def __init__(self, message: str, *, hint: str | None = None, exit_code: int = 1) -> None:
        super().__init__(message, hint=hint)
        self.exit_code = exit_code
