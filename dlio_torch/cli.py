"""The command line: verbs, flags, exit codes, errors in one line.

Nothing heavy is imported here: ``--help``, ``ls``, ``show`` and ``explain`` work without torch, and
everything that needs it is imported by the verb that does.
"""

from __future__ import annotations

import contextlib
import difflib
import json
import os
import signal
import sys
import threading
import traceback
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from types import FrameType
from typing import TYPE_CHECKING

from dlio_torch import __version__
from dlio_torch.dist.launcher import Launch, detect
from dlio_torch.errors import ConfigError, DlioError, RankFailed

if TYPE_CHECKING:
    from dlio_torch.config.compose import Composed

DEBUG_VARIABLE = "DLIO_TORCH_DEBUG"
INTERRUPTED = 130
TERMINATED = 143

VERBS = {
    "run": "generate the data where they are missing, then train (the default)",
    "generate": "write the data set only",
    "train": "train on data that are already there",
    "ls": "list recipes, fragments, scales, formats: ls [section ...]",
    "show": "the complete configuration and where each value came from",
    "explain": "what an option means: explain [key] [recipe=...]",
    "doctor": "check this machine and the tool's own overhead",
    "clean": "remove the data and runs of a recipe",
    "import-dlio": "turn a workload file of DLIO or MLPerf Storage into a recipe: import-dlio FILE.yaml",
}

# Flag -> verbs that know it; empty: all.
FLAGS: dict[str, tuple[str, ...]] = {
    "--help": (),
    "--version": (),
    "--dry-run": ("run", "generate", "train"),
    "--json": ("ls", "show", "explain", "doctor"),
    "--yes": ("clean",),
    "--strict": ("import-dlio",),
    "--output": ("import-dlio",),
    "--ranks": ("import-dlio",),
}
_VALUED = {"--output": "recipe.yaml", "--ranks": "8"}  # flags that take a value, with an example of one
_SHORT = {"-h": "--help", "-n": "--dry-run", "-y": "--yes", "-V": "--version"}

HELP = f"""\
usage: python -m dlio_torch [verb] [key=value ...] [flags]

Does the I/O of a deep-learning training run without the model, and measures it.

  python -m dlio_torch recipe=cosmic_tagger                        run a shipped recipe
  python -m dlio_torch recipe=./mine.yaml loader.num_workers=4     run yours, one option changed
  python -m dlio_torch recipe=cosmic_tagger scale=tiny --dry-run   what would be written and read
  python -m dlio_torch explain loader.prefetch_factor              what an option means
  torchrun --nproc-per-node 2 -m dlio_torch recipe=cosmic_tagger   several ranks
  horovodrun -np 2 python -m dlio_torch recipe=cosmic_tagger       the same with Horovod

verbs
{"".join(f"  {name:<11} {text}" + chr(10) for name, text in VERBS.items())}
arguments
  recipe=NAME|PATH   a shipped recipe (`ls recipes`) or a YAML file; paths hold '/' or end in .yaml
  group=CHOICE       a fragment of conf/, for example dataset=hdf5, loader=workers, scale=paper
  group.key=VALUE    one option; sizes and durations take units: 256KiB, 500ms

flags
  --dry-run, -n      print bytes, files, steps, memory and time, write nothing
  --json             print JSON (ls, show, explain, doctor)
  --yes, -y          do not ask (clean)
  --output PATH      write there, not to the terminal (import-dlio)
  --strict           refuse keys that DLIO does not have (import-dlio)
  --ranks N          ranks that share a model whose file does not say how many (import-dlio)
  --help, -h         this text
  --version, -V      the version

Recipes and fragments of yours are found in recipes/ and conf/ of the folders in DLIO_TORCH_PATH
(separated by colons), before the shipped ones; start from recipes/minimal.yaml.

exit codes
  0 done   1 failed   2 bad configuration   3 a precondition fails (space, missing data)
  4 a threshold that you set was missed   130 interrupted   143 terminated
"""


@dataclass(frozen=True)
class Command:
    """A parsed command line."""

    verb: str = "run"
    flags: frozenset[str] = frozenset()
    words: tuple[str, ...] = ()
    settings: tuple[str, ...] = field(default=())
    values: tuple[tuple[str, str], ...] = ()  # flag and value


class _Terminated(KeyboardInterrupt):
    """SIGTERM: unwinds like an interrupt, so that the same clean-up runs."""

    exit_code = TERMINATED


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line and return the exit code; never raises for what a user can cause.

    Args:
        argv: arguments without the program's name; None: those of this process.
    """
    launch: Launch | None = None
    try:
        with _sigterm():
            launch = detect()
            code = _dispatch(parse(sys.argv[1:] if argv is None else argv), launch)
            sys.stdout.flush()
            return code
    except DlioError as error:
        _complain(error, launch)
        return error.exit_code
    except KeyboardInterrupt as interrupt:
        terminated = isinstance(interrupt, _Terminated)
        if launch is None or launch.rank == 0:
            _say_error("terminated" if terminated else "interrupted")
        return TERMINATED if terminated else INTERRUPTED
    except BrokenPipeError:
        # The reader of our output has left (`ls | head`): nothing is wrong, and nothing can be said.
        with contextlib.suppress(OSError, ValueError):
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 1
    except Exception as error:
        _debug()
        text = " ".join(f"{type(error).__name__}: {error}".split())
        _say_error(f"unexpected {text}; this is a bug, rerun with {DEBUG_VARIABLE}=1 for the traceback", launch)
        return 1


def parse(argv: Sequence[str]) -> Command:
    """Sort arguments into verb, flags, words and ``key=value`` settings.

    Raises:
        ConfigError: an unknown verb or flag, or a flag that the verb does not know.
    """
    flags: set[str] = set()
    rest: list[str] = []
    values: dict[str, str] = {}
    arguments = iter(argv)
    for argument in arguments:
        name, equals, value = argument.partition("=")
        if name in _VALUED:
            flags.add(name)
            values[name] = value if equals else next(arguments, "")
            if not values[name]:
                raise ConfigError(f"{name} (command line): no value", hint=f"write {name} {_VALUED[name]}")
        elif argument.startswith("-") and not equals:
            flags.add(_flag(argument))
        else:
            rest.append(argument)
    verb = "run"
    if rest and "=" not in rest[0]:
        verb = rest.pop(0)
        if verb not in VERBS and not flags & {"--help", "--version"}:
            raise _unknown_verb(verb)
    for flag in sorted(flags):
        if FLAGS[flag] and verb not in FLAGS[flag]:
            raise ConfigError(
                f"{flag} (command line): not a flag of {verb}", hint=f"use it with {', '.join(FLAGS[flag])}"
            )
    if verb == "import-dlio":
        return Command(verb, frozenset(flags), tuple(rest), values=tuple(values.items()))
    takes_words = verb in ("ls", "explain")
    words = tuple(argument for argument in rest if takes_words and "=" not in argument)
    settings = tuple(argument for argument in rest if not takes_words or "=" in argument)
    if verb == "explain" and len(words) > 1:
        raise ConfigError(f"explain {' '.join(words)} (command line): one key at a time", hint=f"explain {words[0]}")
    return Command(verb, frozenset(flags), words, settings)


def _dispatch(command: Command, launch: Launch) -> int:
    if "--help" in command.flags:
        print(HELP, end="")
        return 0
    if "--version" in command.flags:
        print(f"dlio_torch {__version__}")
        return 0
    if command.verb == "ls":
        return _ls(command)
    if command.verb == "explain":
        return _explain(command, launch)
    if command.verb == "show":
        return _show(command, launch)
    if command.verb == "doctor":
        from dlio_torch.doctor import doctor

        composed = _compose(command, launch) if command.settings else None
        return doctor(composed, json="--json" in command.flags)
    if command.verb == "clean":
        return _clean(command, launch)
    if command.verb == "import-dlio":
        return _import_dlio(command, launch)
    return _run(command, launch)


def _run(command: Command, launch: Launch) -> int:
    composed = _compose(command, launch)
    phases = ("generate", "train") if command.verb == "run" else (command.verb,)
    if "train" in phases and composed.config.dataset.path is None:
        from dlio_torch.config.validate import check_world

        # Before torch is imported and anything is written; existing data are counted later.
        world_size = 1 if composed.config.dist.backend == "single" else launch.world_size
        check_world(composed.config, world_size, sources=composed.sources)
    if "--dry-run" in command.flags:
        from dlio_torch.plan import dry_run

        return dry_run(composed, phases)
    from dlio_torch.run import run

    return run(composed, phases=phases)


def _ls(command: Command) -> int:
    from dlio_torch.config.describe import listing, listing_text
    from dlio_torch.formats.registry import available

    if command.settings:
        raise ConfigError(
            f"argument {command.settings[0]!r} (command line): ls takes names of sections",
            hint=f"show {command.settings[0]} prints a configuration",
        )
    sections = listing(command.words, formats=sorted(available()))
    print(_json(sections) if "--json" in command.flags else listing_text(sections), end="")
    return 0


def _explain(command: Command, launch: Launch) -> int:
    from dlio_torch.config.describe import explain, explain_data

    composed = _compose(command, launch) if command.settings else None
    key = command.words[0] if command.words else ""
    print(_json(explain_data(key, composed)) if "--json" in command.flags else explain(key, composed), end="")
    return 0


def _show(command: Command, launch: Launch) -> int:
    from dlio_torch.config.describe import show, show_data

    composed = _compose(command, launch)
    print(_json(show_data(composed)) if "--json" in command.flags else show(composed), end="")
    return 0


def _clean(command: Command, launch: Launch) -> int:
    from dlio_torch.clean import clean

    composed = _compose(command, launch)
    if launch.rank != 0:
        return 0
    asks = sys.stdin is not None and sys.stdin.isatty()
    clean(composed.config, yes="--yes" in command.flags, say=print, confirm=_confirm if asks else None)
    return 0


def _import_dlio(command: Command, launch: Launch) -> int:
    from pathlib import Path

    from dlio_torch.config import resources
    from dlio_torch.config.dlio import convert
    from dlio_torch.config.dlio.files import read_workload, write_recipe

    if len(command.words) != 1:
        given = " ".join(command.words) or "no file"
        raise ConfigError(f"import-dlio: {given} (command line): expected one file", hint="import-dlio FILE.yaml")
    (name,), values = command.words, dict(command.values)
    ranks = values.get("--ranks", "0")
    if not (ranks.isascii() and ranks.isdecimal() and len(ranks) < 8) or ("--ranks" in values and not int(ranks)):
        raise ConfigError(f"--ranks {ranks} (command line): expected a number of ranks", hint="write --ranks 8")
    places = resources.find(Path.cwd(), os.environ)
    made = convert(read_workload(name), places, strict="--strict" in command.flags, ranks=int(ranks))
    if launch.rank != 0:
        return 0
    if "--output" in values:
        write_recipe(made.text, values["--output"], name)
    else:
        print(made.text, end="")
        sys.stdout.flush()
    counts = f"{made.mapped} keys mapped, {len(made.not_honoured)} not honoured, {len(made.unknown)} unknown"
    lines = [f"dlio_torch: {name}: {counts}", *(f"  {line}" for line in made.report())]
    with contextlib.suppress(OSError, ValueError):
        sys.stderr.write("".join(f"{line}\n" for line in lines))
    return 0


def _confirm(question: str) -> bool:
    try:
        return input(question).strip().lower() in ("y", "yes")
    except EOFError:
        return False


def _compose(command: Command, launch: Launch) -> Composed:
    from dlio_torch.config.compose import compose
    from dlio_torch.formats.registry import available

    return compose(command.settings, world_size=launch.world_size, formats=available())


def _json(value: object) -> str:
    return json.dumps(value, indent=2, ensure_ascii=False, allow_nan=False) + "\n"


def _flag(argument: str) -> str:
    flag = _SHORT.get(argument, argument)
    if flag in FLAGS:
        return flag
    close = difflib.get_close_matches(argument, FLAGS, n=1, cutoff=0.4)
    meant = f"did you mean {close[0]}? " if close else ""
    raise ConfigError(f"{argument} (command line): unknown flag", hint=f"{meant}flags are {', '.join(FLAGS)}")


def _unknown_verb(word: str) -> ConfigError:
    from dlio_torch.config.compose import split_argument
    from dlio_torch.config.describe import listing

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


def _complain(error: DlioError, launch: Launch | None) -> None:
    _debug()
    # All ranks find the same mistake in the configuration, and all hear of another rank's failure.
    alike = isinstance(error, (ConfigError, RankFailed))
    if launch is None or launch.rank == 0:
        _say_error(f"error: {error}", None if alike else launch)
    elif not alike:
        _say_error(f"error: {error}", launch)


def _say_error(text: str, launch: Launch | None = None) -> None:
    rank = f"rank {launch.rank}: " if launch is not None and launch.world_size > 1 else ""
    with contextlib.suppress(OSError, ValueError):
        sys.stdout.flush()
    # One write call, so that the lines of several ranks do not mix.
    with contextlib.suppress(OSError, ValueError):
        sys.stderr.write(f"dlio_torch: {rank}{text}\n")
        sys.stderr.flush()


def _debug() -> None:
    if os.environ.get(DEBUG_VARIABLE) == "1":
        traceback.print_exc()


@contextlib.contextmanager
def _sigterm() -> Iterator[None]:
    """Turn SIGTERM into an interrupt of the main thread, in this process only."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    owner = os.getpid()

    def terminate(number: int, frame: FrameType | None) -> None:
        if os.getpid() != owner:
            # A forked worker inherited this handler; it dies as it would have without us.
            signal.signal(number, signal.SIG_DFL)
            os.kill(os.getpid(), number)
            return
        raise _Terminated

    before = signal.signal(signal.SIGTERM, terminate)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)
