"""The command line: runs a verb, prints errors as one line, and returns exit codes.

Nothing heavy is imported here: ``--help``, ``ls``, ``show`` and ``explain`` work without torch; the module
of a verb (:mod:`dlio_torch.commands`) is imported when the verb is used.
"""

from __future__ import annotations

import contextlib
import importlib
import os
import sys
import traceback
from collections.abc import Sequence

from dlio_torch import __version__
from dlio_torch.commands.command_line import Command, parse
from dlio_torch.dist.launcher import Launch, detect, tell_torchrun
from dlio_torch.errors import DEBUG_VARIABLE, ConfigError, DlioError, PreconditionError, RankFailed, debugging, one_line
from dlio_torch.supervision.signals import kind_of, raising
from dlio_torch.syserrors import BAD_NAME, NO_SPACE, no_memory, refused, silence_output

ENDED_BY_SIGNAL = (129, 130, 143)
"""Exit codes after SIGHUP, Ctrl-C and SIGTERM."""

# Each verb's module in :mod:`dlio_torch.commands`; its ``main`` does the work.
_MODULES = {
    **dict.fromkeys(("run", "generate", "train"), "run"),
    **dict.fromkeys(("ls", "explain", "show"), "explain"),
    **dict.fromkeys(("doctor", "clean"), "upkeep"),
    **{verb: verb for verb in ("checkpoint", "sweep", "tune", "headspace", "node", "launch", "predict", "fit")},
    "trace": "record",
    "inspect": "inspect",
    **dict.fromkeys(("report", "compare"), "reports"),
    "import-dlio": "import_dlio",
}


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line and return the exit code; never raises for what a user can cause.

    Args:
        argv: arguments without the program's name; None: those of this process.
    """
    launch: Launch | None = None
    try:
        with raising(until_exit=argv is None):
            launch = detect()
            code = _dispatch(parse(sys.argv[1:] if argv is None else argv), launch)
            sys.stdout.flush()
            return code
    except DlioError as error:
        _complain(error, launch)
        if error.leave_at_once and argv is None:  # as a program; one that called us is left alone
            os._exit(error.exit_code)
        return error.exit_code
    except KeyboardInterrupt as interrupt:
        kind = kind_of(interrupt)
        if launch is None or launch.rank == 0:
            _say_error(one_line("; ".join(filter(None, [kind.message, str(interrupt)]))))
        return kind.exit_code
    except BrokenPipeError:
        # The reader of our output has left (`ls | head`): nothing is wrong, and nothing can be said.
        silence_output()
        return 1
    except Exception as error:
        _debug()
        if (line := no_memory(error)) is not None:
            _say_error(one_line(f"error: {line}"), launch)
            return 1
        if isinstance(error, OSError) and error.errno in NO_SPACE and _from_output(error):
            _complain(
                refused(
                    "the standard output cannot be written", error, elsewhere="redirect the output to another file"
                ),
                launch,
            )
            return PreconditionError.exit_code
        if isinstance(error, OSError) and error.errno in BAD_NAME:  # an argument, or what is made of one
            _complain(refused(f"{error.filename} cannot be used", error), launch)
            return PreconditionError.exit_code
        text = one_line(f"{type(error).__name__}: {error}")
        _say_error(
            f"unexpected {text}; this is a bug in dlio_torch, set {DEBUG_VARIABLE}=1 and run the command again for "
            "the traceback",
            launch,
        )
        return 1


def _dispatch(command: Command, launch: Launch) -> int:
    if "--help" in command.flags:
        from dlio_torch.commands.help_text import help_of

        print(help_of(command.verb if command.names_verb else ""), end="")
        return 0
    if "--version" in command.flags:
        print(f"dlio_torch {__version__}")
        return 0
    if command == Command():
        if launch.rank == 0:
            from dlio_torch.commands.overview import overview

            print(overview(), end="")
        return 0
    from dlio_torch.commands.paths import check_paths

    check_paths(command)
    module = importlib.import_module(f"dlio_torch.commands.{_MODULES[command.verb]}")
    code: int = module.main(command, launch)
    return code


def _complain(error: DlioError, launch: Launch | None) -> None:
    _debug()
    tell_torchrun(f"dlio_torch: error: {error}")
    # All ranks find the same mistake in the configuration, and all hear of another rank's failure.
    alike = isinstance(error, (ConfigError, RankFailed))
    if launch is None or launch.rank == 0:
        _say_error(f"error: {error}", None if alike else launch)
    elif not alike:
        _say_error(f"error: {error}", launch)


def _say_error(text: str, launch: Launch | None = None) -> None:
    tell_torchrun(f"dlio_torch: {text}")
    rank = f"rank {launch.rank}: " if launch is not None and launch.world_size > 1 else ""
    try:
        sys.stdout.flush()
    except (OSError, ValueError):
        silence_output()  # else the interpreter tries again at its end, and fails with a code of its own
    # One write call, so that the lines of several ranks do not mix.
    with contextlib.suppress(OSError, ValueError):
        sys.stderr.write(f"dlio_torch: {rank}{text}\n")
        sys.stderr.flush()


def _from_output(error: OSError) -> bool:
    """Whether the standard output, not a file, raised the error.

    Files of ours have names.  Without one it is what we print to, unless it comes out of a library, which made
    something without a name, shared memory for example.
    """
    *_, (innermost, _) = traceback.walk_tb(error.__traceback__)
    is_ours = str(innermost.f_globals.get("__name__")).partition(".")[0] == __package__
    return error.filename is None and is_ours


def _debug() -> None:
    if debugging():
        traceback.print_exc()
