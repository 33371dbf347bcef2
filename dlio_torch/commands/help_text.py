"""Help of the command line: of the whole program, and of verbs that have keys of their own."""

from __future__ import annotations

import textwrap

from dlio_torch.commands.command_line import FLAGS, VERBS
from dlio_torch.study.verb_keys import EXAMPLES, KEYS, OBJECTIVES, key_lines

_WIDTH = 100  # columns of the help
_FIRST = {"launch": " [verb]", "predict": " RUN"}
_AXES = """
an option of several values is an axis
  key=a,b,c  key=0..8  key=0..16:4  key=64KiB..4MiB:x2
"""


def _flag_help(verb: str = "") -> str:
    lines = []
    for name, flag in FLAGS.items():
        if verb and flag.verbs and verb not in flag.verbs:
            continue
        left = f"{name} {flag.example}" if flag.example else name
        left += f", {flag.short}" if flag.short else ""
        verbs = f" ({', '.join(flag.verbs)})" if not verb and flag.verbs and len(flag.verbs) < 4 else ""
        lines.append(f"  {left:<22} {flag.text}{verbs}\n")
    return "".join(lines)


HELP = f"""\
usage: python -m dlio_torch [verb] [key=value ...] [flags]

Does the I/O of a deep-learning training run without the model, and measures it.

  python -m dlio_torch recipe=cosmic_tagger                        run a shipped recipe
  python -m dlio_torch recipe=./mine.yaml loader.num_workers=4     run yours, one option changed
  python -m dlio_torch recipe=cosmic_tagger scale=tiny --dry-run   what would be written and read
  python -m dlio_torch explain loader.prefetch_factor              what an option means
  python -m dlio_torch sweep recipe=minimal loader.num_workers=0,2   try settings, compare them
  python -m dlio_torch trace -- python train.py --epochs 1         record your own program
  python -m dlio_torch report runs/cosmic_tagger/20261120-180000   look at what was recorded
  torchrun --nproc-per-node 2 -m dlio_torch recipe=cosmic_tagger   several ranks
  horovodrun -np 2 python -m dlio_torch recipe=cosmic_tagger       the same with Horovod

verbs
{"".join(f"  {name:<11} {text}" + chr(10) for name, text in VERBS.items())}
arguments
  recipe=NAME|PATH   a shipped recipe (`ls recipes`) or a YAML file; paths hold '/' or end in .yaml
  group=CHOICE       a fragment of conf/, for example dataset=hdf5, loader=workers, scale=paper
  group.key=VALUE    one option; sizes and durations take units: 256KiB, 500ms
  sweep, tune, headspace, launch and predict with --help list the keys of their own

flags
{_flag_help()}
Recipes and fragments of yours are found in recipes/ and conf/ of the folders in DLIO_TORCH_PATH
(separated by colons), before the shipped ones; start from recipes/minimal.yaml.

exit codes
  0 done   1 failed   2 bad configuration   3 a precondition fails (space, missing data)
  4 a threshold that you set was missed   130 interrupted   143 terminated   129 terminal closed
  trace gives the exit code of the program that it records
"""


def help_of(verb: str) -> str:
    """The help of a verb that has keys of its own, or else of the whole program."""
    if verb not in KEYS:
        return HELP
    summary = VERBS[verb].partition(": ")[0]
    axes = _AXES if verb in ("sweep", "tune") else ""
    option = "system, for example system.targets=56" if verb == "predict" else "a run, for example loader.num_workers=2"
    objectives = "".join(_wrapped(name, words) for name, words in OBJECTIVES.items()) if verb == "tune" else ""
    return f"""\
usage: python -m dlio_torch {verb}{_FIRST.get(verb, "")} key=value ... [flags]

{summary[0].upper()}{summary[1:]}.

  python -m dlio_torch {EXAMPLES[verb]}

keys of {verb} [default]
{chr(10).join(key_lines(verb, _WIDTH))}
  any option of {option}; `explain KEY` tells what a key means
{f"{chr(10)}objectives{chr(10)}{objectives}" if objectives else ""}{axes}
flags
{_flag_help(verb)}
python -m dlio_torch --help lists the other verbs and the exit codes.
"""


def _wrapped(name: str, text: str) -> str:
    left = f"  {name:<12}"
    return textwrap.fill(text, _WIDTH, initial_indent=left, subsequent_indent=" " * len(left)) + "\n"
