"""Options of flat files of token ids: ``dataset.tokens``."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from dlio_torch.config.opt import opt

MOST_WINDOW = 1 << 24
"""Upper limit of the tokens of a window, beyond the longest context of any model."""


@dataclass(frozen=True)
class TokensConfig:
    """Flat files of token ids, as nanoGPT's train.bin; a sample is a window of consecutive tokens."""

    dtype: Literal["uint8", "uint16", "uint32", "int32", "int64"] = opt(
        "uint16", "element type of the stored tokens, which a file without a header does not state"
    )
    window: int = opt(1024, "tokens of a sample (block_size of nanoGPT)", minimum=1, maximum=MOST_WINDOW)
    stride: int = opt(
        0,
        "tokens from the start of a window to the start of the next; 0: window, so that windows do not overlap; 1: a "
        "window starts at every token, so that access=shuffled gives random starts as nanoGPT's",
        minimum=0,
    )
    targets: bool = opt(
        True,
        "true: arrays x and y of int64, where y is shifted by one token; false: one array of the stored element type, "
        "which the device converts",
    )
    memory_map: bool = opt(
        True, "true: samples are slices of a numpy.memmap; false: each is read by numpy.fromfile, which opens the file"
    )
    reopen: Literal["batch", "none"] = opt(
        "batch",
        "batch: the file is mapped again for each batch, as nanoGPT does to give its memory back; none: it is mapped "
        "once, and forked workers inherit the mapping; of no effect with memory_map=false",
    )
    header: Literal["none", "llm.c"] = opt(
        "none", "none: tokens only; llm.c: 256 integers of 32 bits before the tokens, as llm.c and modded-nanogpt write"
    )
    vocabulary: int = opt(
        50257, "number of different token ids in generated files; the default is GPT-2's", minimum=1, maximum=1 << 31
    )
