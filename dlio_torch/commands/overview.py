"""Short help of a command line without arguments: the first command, the verbs, and the shipped recipes."""

from __future__ import annotations

from dlio_torch.commands.text_width import output_width, wrap
from dlio_torch.commands.verbs import VERBS
from dlio_torch.config.explanation import listing, listing_text

_HEAD = """\
dlio_torch does the I/O of a deep-learning training run without the model, and measures it.

  python -m dlio_torch recipe=minimal   try this first: a small training run of a few seconds
  python -m dlio_torch --help           arguments, flags and exit codes
  python -m dlio_torch VERB --help      usage and examples of a verb

"""


def overview() -> str:
    """The text, wrapped to the width of the output."""
    verbs = "".join(f"  {name:<11}  {verb.summary}\n" for name, verb in VERBS.items())
    return wrap(f"{_HEAD}verbs\n{verbs}\n{listing_text(listing(['recipes']))}", output_width())
