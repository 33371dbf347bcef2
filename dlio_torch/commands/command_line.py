"""Command-line syntax: verbs, flags, and the parser that sorts arguments into verb, flags, words and settings."""

from __future__ import annotations

import difflib
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from dlio_torch.commands.verbs import VERBS
from dlio_torch.errors import ConfigError
from dlio_torch.study.verb_keys import KEYS

if TYPE_CHECKING:
    from dlio_torch.config.compose import Detail


@dataclass(frozen=True)
class Flag:
    """One flag.

    Attributes:
        verbs: verbs that know it; empty: all.
        text: one line of help.
        example: a value, for a flag that takes one; empty: it takes none.
        short: its one-letter form.
        many: whether it may be given several times.
        path: whether its value is a path on this machine, after a name and ``=`` where it has one.
    """

    verbs: tuple[str, ...]
    text: str
    example: str = ""
    short: str = ""
    many: bool = False
    path: bool = False


FLAGS: dict[str, Flag] = {
    "--dry-run": Flag(
        ("run", "generate", "train", "checkpoint", "sweep", "tune", "headspace", "node", "launch"),
        "print what would be done and how long it would take",
        short="-n",
    ),
    "--quiet": Flag(
        ("run", "generate", "train", "checkpoint", "sweep", "tune", "headspace", "node", "doctor", "fit"),
        "no progress and no notes: only results, warnings and errors",
        short="-q",
    ),
    "--verbose": Flag(("run", "train"), "print all tables of the figures", short="-v"),
    "--json": Flag(
        (
            "run",
            "train",
            "checkpoint",
            "ls",
            "show",
            "explain",
            "inspect",
            "doctor",
            "report",
            "compare",
            "tune",
            "headspace",
            "node",
            "predict",
            "fit",
        ),
        "print JSON",
    ),
    "--yes": Flag(("clean",), "do not ask", short="-y"),
    "--output": Flag(
        ("import-dlio", "inspect", "node", "report", "trace", "fit"),
        "write there: a file, or a folder of trace or fit",
        "PATH",
        path=True,
    ),
    "--force": Flag(
        ("import-dlio", "inspect", "node", "report", "launch", "fit"),
        "replace the file of --output or script=, or the result of fit",
    ),
    "--resume": Flag(("sweep", "tune", "headspace"), "go on with a study", "DIR", path=True),
    "--accelerators": Flag(("node",), "accelerators of the node; without it the visible GPUs, or 1", "8"),
    "--seconds": Flag(("node",), "length of each measurement [3]", "1.5"),
    "--submit": Flag(("launch",), "hand the script to the scheduler"),
    "--remove-data": Flag(("sweep", "launch"), "remove the study's data sets after their last run"),
    "--strict": Flag(("import-dlio",), "refuse keys that DLIO does not have"),
    "--ranks": Flag(("import-dlio",), "ranks that share a model whose file does not say how many", "8"),
    "--include": Flag(
        ("trace",), "record only files below this path, or that match it", "'/data/*'", many=True, path=True
    ),
    "--exclude": Flag(("trace",), "leave these out", "'*.log'", many=True, path=True),
    "--method": Flag(("trace",), "preload or strace; without it what this machine offers", "strace"),
    "--limit": Flag(("trace",), "most bytes of records that a process may write", "4GiB"),
    "--calls-only": Flag(("trace",), "record I/O calls only, not what the program asks torch for"),
    "--fail": Flag(("compare",), "exit code 4 where the component is above the limit", "worst:0.1", many=True),
    "--repeat": Flag(("compare",), "another run of A or of B, for the noise floor", "B=runs/x/2", many=True, path=True),
    "--rerun": Flag(
        ("fit",), "another recording of the same program, for the noise floor", "rec2", many=True, path=True
    ),
    "--no-score": Flag(
        ("fit",),
        "do not compare a run; a short one measures preprocessing all the same",
    ),
    "--anonymise": Flag(("fit",), "no names of files, hosts, users, programs or arrays in the result"),
    "--files": Flag(("compare",), "which file of B stands for which of A", "a.h5=b.h5", many=True),
    "--per-rank": Flag(("compare",), "compare rank by rank"),
    "--scale-free": Flag(("compare",), "leave the amount out: shares and rates instead of counts"),
    "--storage": Flag(("compare",), "same or other; on the same durations are compared, too", "same"),
    "--help": Flag((), "this text", short="-h"),
    "--version": Flag((), "the version", short="-V"),
}
_SHORT = {flag.short: name for name, flag in FLAGS.items() if flag.short}
# Verbs that take words without "=".
_STUDIES = ("sweep", "tune", "headspace", "launch")  # whose keys may have several values
_WORDS = ("ls", "explain", "inspect", "import-dlio", "launch", "report", "compare", "predict", "clean", "fit")
_PATHS = ("import-dlio", "report", "compare", "fit")  # whose words are paths, which may hold "="
PATH_WORDS = (*_PATHS, "inspect", "predict", "clean")
"""Verbs whose words are paths."""


@dataclass(frozen=True)
class Command:
    """A parsed command line.

    Attributes:
        verb: what to do.
        flags: names of the flags that were given.
        words: arguments that are no settings.
        settings: ``key=value`` arguments.
        values: flag and value, in the order given.
        program: the command behind ``--``.
        names_verb: whether the verb was given; ``run`` is the default.
    """

    verb: str = "run"
    flags: frozenset[str] = frozenset()
    words: tuple[str, ...] = ()
    settings: tuple[str, ...] = ()
    values: tuple[tuple[str, str], ...] = ()
    program: tuple[str, ...] = ()
    names_verb: bool = False

    @property
    def detail(self) -> Detail:
        """Amount of output, by ``--json``, ``--quiet`` and ``--verbose``."""
        if "--json" in self.flags:
            return "json"
        return "quiet" if "--quiet" in self.flags else "verbose" if "--verbose" in self.flags else "normal"

    def value(self, flag: str) -> str | None:
        """The value of a flag, None where it was not given."""
        given = self.all_values(flag)
        return given[-1] if given else None

    def all_values(self, flag: str) -> list[str]:
        """All values of a flag that may be given several times."""
        return [value for name, value in self.values if name == flag]


def parse(argv: Sequence[str]) -> Command:
    """Sort arguments into verb, flags, words and ``key=value`` settings.

    Raises:
        ConfigError: an unknown verb or flag, or a flag that the verb does not know.
    """
    cut = list(argv).index("--") if "--" in argv else len(argv)
    program = tuple(argv[cut + 1 :])
    flags: set[str] = set()
    rest: list[str] = []
    values: list[tuple[str, str]] = []
    arguments = deque(argv[:cut])
    while arguments:
        argument = arguments.popleft()
        name, equals, value = argument.partition("=")
        if name in FLAGS and FLAGS[name].example:
            given = value if equals else (arguments.popleft() if arguments else "")
            if not given:
                raise ConfigError(f"{name} (command line): no value", hint=f"write {name} {FLAGS[name].example}")
            if name in flags and not FLAGS[name].many:
                raise ConfigError(f"{name} (command line): given twice", hint="keep one")
            flags.add(name)
            values.append((name, given))
        elif argument.startswith("-") and (not equals or _setting_of(name)):
            flags.add(_flag(argument, arguments[0] if arguments else ""))
        else:
            rest.append(argument)
    names_verb = bool(rest) and "=" not in rest[0]
    verb = rest.pop(0) if names_verb else "run"
    if verb not in VERBS and not flags & {"--help", "--version"}:
        raise _unknown_verb(verb)
    for flag in sorted(flags):
        if FLAGS[flag].verbs and verb not in FLAGS[flag].verbs:
            raise ConfigError(
                f"{flag} (command line): not a flag of {verb}", hint=f"use it with {', '.join(FLAGS[flag].verbs)}"
            )
    if {"--quiet", "--verbose"} <= flags:
        raise ConfigError("--verbose (command line): --quiet prints less, not more", hint="keep one")
    if {"--json", "--verbose"} <= flags:
        raise ConfigError("--verbose (command line): --json prints all figures", hint="keep one")
    if {"--json", "--dry-run"} <= flags and verb in ("run", "train", "checkpoint"):
        raise ConfigError("--json (command line): a plan is not printed as JSON", hint="leave out --json or --dry-run")
    if cut < len(argv) and verb != "trace":
        raise ConfigError(
            f"-- (command line): only the verb trace runs a program, and the verb is {verb}",
            hint="write trace -- PROGRAM",
        )
    settings = tuple(a for a in rest if _is_setting(a, verb))
    words = tuple(a for a in rest if not _is_setting(a, verb))
    _refuse_repeated(settings, verb)
    if verb == "explain" and len(words) > 1:
        raise ConfigError(f"explain {' '.join(words)} (command line): one key at a time", hint=f"explain {words[0]}")
    return Command(verb, frozenset(flags), words, settings, tuple(values), program, names_verb)


def _refuse_repeated(settings: Sequence[str], verb: str) -> None:
    pairs = [(key.strip(), value) for key, equals, value in (setting.partition("=") for setting in settings) if equals]
    if len(dict(pairs)) == len(pairs):
        return
    from dlio_torch.config.arguments import refuse_repeated

    several = "keep one; write several values in one argument: key=a,b,c"
    refuse_repeated(pairs, several if verb in _STUDIES else "keep one of the two")


def _is_setting(argument: str, verb: str) -> bool:
    """Whether an argument sets an option or key; verbs without words refuse what does not later."""
    if verb == "inspect":  # paths such as year=2024/part.parquet hold "="
        return argument.startswith("dataset.")
    if verb == "clean":
        return "/" not in argument.partition("=")[0] and "=" in argument
    if verb in _PATHS:
        return verb == "report" and argument.startswith("output.root=")
    return verb not in _WORDS or "=" in argument


def _flag(argument: str, following: str) -> str:
    """The name of a flag that takes no value.

    Args:
        argument: as it was given.
        following: the next one, which may be the value of an option that is written like a flag.

    Raises:
        ConfigError: there is no such flag.
    """
    flag = _SHORT.get(argument, argument)
    if flag in FLAGS:
        return flag
    name, _, value = argument.partition("=")
    setting = _setting_of(name)
    close = [f"{setting}={value or _value(following)}"] if setting else _close(argument)
    meant = f"did you mean {close[0]}? " if close else ""
    raise ConfigError(f"{argument} (command line): unknown flag", hint=f"{meant}flags are {', '.join(FLAGS)}")


def _close(argument: str) -> list[str]:
    return difflib.get_close_matches(argument, FLAGS, n=1, cutoff=0.4)


def _value(following: str) -> str:
    return "..." if not following or following.startswith("-") or "=" in following else following


def _setting_of(flag: str) -> str:
    """The option that a flag names, as other programs write options; empty: none."""
    from dlio_torch.config.fields import lookup

    key = flag.lstrip("-").replace("-", "_")
    known = any(key in keys for keys in KEYS.values()) or (key and lookup(key.split(".")) is not None)
    return key if known and flag not in FLAGS and flag not in _SHORT else ""


def _unknown_verb(word: str) -> ConfigError:
    from dlio_torch.config.arguments import split_argument
    from dlio_torch.config.explanation import listing

    if "." in word and "/" not in word and not word.endswith((".yaml", ".yml")):
        try:
            split_argument(word)  # an option without its value has a better remedy than a list of verbs
        except ConfigError as error:
            return error
    recipes = listing(["recipes"])["recipes"]
    candidates = {**{verb: verb for verb in VERBS}, **{name: f"recipe={name}" for name in recipes}}
    if "/" in word or word.endswith((".yaml", ".yml")):
        meant = f"did you mean recipe={word}? "
    else:
        close = difflib.get_close_matches(word, candidates, n=1)
        meant = f"did you mean {candidates[close[0]]}? " if close else ""
    return ConfigError(f"{word} (command line): unknown verb", hint=f"{meant}verbs are {', '.join(VERBS)}")
