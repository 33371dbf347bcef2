"""Windows of consecutive tokens: the tokens that each sample takes from its file."""

from __future__ import annotations

from dataclasses import dataclass

from dlio_torch.formats.tokens.options import TokensConfig


@dataclass(frozen=True)
class Windows:
    """Positions of the samples of a file, in tokens.

    Attributes:
        length: tokens of a sample.
        stride: from the start of a sample to the start of the next.
        span: tokens of the file that a sample needs: one more than ``length`` where it has a target.
    """

    length: int
    stride: int
    span: int

    @classmethod
    def of(cls, options: TokensConfig) -> Windows:
        """The windows that the options describe."""
        return cls(options.window, options.stride or options.window, options.window + options.targets)

    def count(self, tokens: int) -> int:
        """Number of samples in a file of so many tokens.

        With targets and a stride of 1 it is the bound of nanoGPT's random starts (``get_batch``:
        ``len(data) - block_size``); with a stride of a window it is ``(tokens - 1) // window``, as in llm.c
        (llmc/dataloader.h).
        """
        return max(0, (tokens - self.span) // self.stride + 1)

    def tokens(self, samples: int) -> int:
        """Number of tokens of a file of so many samples, at least 1."""
        return (samples - 1) * self.stride + self.span
