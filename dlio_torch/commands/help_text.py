"""Help of the command line: of the whole program, and of each verb."""

from __future__ import annotations

import textwrap

from dlio_torch.commands.command_line import FLAGS
from dlio_torch.commands.verbs import COMMON_USAGE, VERBS
from dlio_torch.study.verb_keys import KEYS, OBJECTIVES, key_lines

_WIDTH = 100  # columns of the help
_AXES = """\
an option of several values is an axis
  key=a,b,c  key=0..8  key=0..16:4  key=64KiB..4MiB:x2
"""
_ARGUMENTS = """\
arguments
  recipe=NAME|PATH   a shipped recipe (`ls recipes`) or a YAML file; paths hold '/' or end in .yaml
  group=CHOICE       a fragment of conf/, for example dataset=hdf5, loader=workers, scale=paper
  group.key=VALUE    one option; sizes and durations take units: 256KiB, 500ms
"""
_OPTIONS = {
    "run": "a run, for example loader.num_workers=2",
    "system": "system, for example system.targets=56",
}


def _verb_list() -> str:
    lines = []
    for name, verb in VERBS.items():
        usage = "" if verb.usage == COMMON_USAGE else f": {name} {verb.usage}"
        lines.append(f"  {name:<11} {verb.summary}{usage}\n")
    return "".join(lines)


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
  python -m dlio_torch report                                      a page of the newest run
  torchrun --nproc-per-node 2 -m dlio_torch recipe=cosmic_tagger   several ranks
  horovodrun -np 2 python -m dlio_torch recipe=cosmic_tagger       the same with Horovod

verbs
{_verb_list()}
{_ARGUMENTS}  each verb with --help has its examples, flags and keys of its own

flags
{_flag_help()}
Recipes and fragments of yours are found in recipes/ and conf/ of the folders in DLIO_TORCH_PATH
(separated by colons), before the shipped ones; start from recipes/minimal.yaml.

exit codes
  0 done   1 failed   2 bad configuration   3 a precondition fails (space, missing data)
  4 a threshold that you set was missed   130 interrupted   143 terminated   129 terminal closed
  trace gives the exit code of the program that it records
"""


def help_of(name: str) -> str:
    """The help of a verb; of the whole program, if there is no such verb."""
    verb = VERBS.get(name)
    if verb is None:
        return HELP
    parts = [
        f"usage: python -m dlio_torch {name} {verb.usage}{'' if '[flags]' in verb.usage else ' [flags]'}\n",
        textwrap.fill(verb.text, _WIDTH, break_long_words=False, break_on_hyphens=False) + "\n",
        "".join(f"  python -m dlio_torch {example}\n" for example in verb.examples),
    ]
    if name in KEYS:
        lines = "\n".join(key_lines(name, _WIDTH))
        option = _OPTIONS[verb.options]
        parts.append(
            f"keys of {name} [default]\n{lines}\n  any option of {option}; `explain KEY` tells what a key means\n"
        )
    elif verb.options:
        parts.append(_ARGUMENTS + ("" if name == "explain" else "  `explain KEY` tells what an option means\n"))
    if name == "tune":
        parts.append("objectives\n" + "".join(_wrapped(word, meaning) for word, meaning in OBJECTIVES.items()))
    if name in ("sweep", "tune"):
        parts.append(_AXES)
    parts.append(f"flags\n{_flag_help(name)}")
    parts.append("python -m dlio_torch --help lists the other verbs and the exit codes.\n")
    return "\n".join(parts)


def _wrapped(name: str, text: str) -> str:
    left = f"  {name:<12}"
    return textwrap.fill(text, _WIDTH, initial_indent=left, subsequent_indent=" " * len(left)) + "\n"
