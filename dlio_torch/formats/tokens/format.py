"""Format ``tokens``: flat files of token ids, of which a sample is a window.

The files are those that nanoGPT prepares of OpenWebText, bare ``uint16``, and with ``header=llm.c`` those of llm.c and
modded-nanogpt.  With ``memory_map`` the calls are those of nanoGPT's ``get_batch``.
"""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import Executor
from contextlib import closing
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt

from dlio_torch.config.schema import DatasetConfig
from dlio_torch.errors import ConfigError
from dlio_torch.formats.core import payload
from dlio_torch.formats.core.batch import ArraySpec, Sample
from dlio_torch.formats.core.format import FileInfo, Format
from dlio_torch.formats.core.layout import FileLayout
from dlio_torch.formats.core.ordered_map import in_order
from dlio_torch.formats.core.reader import Reader
from dlio_torch.formats.tokens.header import MOST_TOKENS, header_of
from dlio_torch.formats.tokens.layout import file_layout
from dlio_torch.formats.tokens.options import TokensConfig
from dlio_torch.formats.tokens.reader import (
    INPUTS,
    STORED,
    TARGETS,
    FileReader,
    MappedReader,
    TokensReader,
    first_byte,
)
from dlio_torch.formats.tokens.windows import Windows
from dlio_torch.iotrace.recorder.spans import NULL, Recorder

_BLOCK = 1 << 12  # tokens that one key of the generator gives
_BLOCKS = 1 << 47  # keys; the tokens repeat behind them
_PIECE = 1 << 18  # tokens that one thread generates at a time
_AHEAD = 16  # pieces in memory while a file is written


class TokensFormat(Format):
    """Windows of consecutive tokens."""

    name: ClassVar[str] = "tokens"
    suffix: ClassVar[str] = ".bin"
    writes_at_once: ClassVar[bool] = True
    has_layout: ClassVar[bool] = True

    def __init__(self, config: DatasetConfig, seed: int) -> None:
        self.options: TokensConfig = config.of(TokensConfig)
        super().__init__(config, seed)
        self._dtype = np.dtype(self.options.dtype)
        self._windows = Windows.of(self.options)
        if config.path is None:
            self._check_generated()

    def _check_generated(self) -> None:
        """Raise unless the files can be generated."""
        options, most = self.options, int(np.iinfo(self._dtype).max)
        if options.vocabulary - 1 > most:
            raise ConfigError(
                f"dataset.tokens.vocabulary={options.vocabulary} needs tokens of more than {options.dtype}, whose "
                f"largest is {most}",
                hint=f"set dataset.tokens.dtype=uint32, or a vocabulary of at most {most + 1}",
            )
        tokens = self._windows.tokens(self.config.samples_per_file)
        if options.header == "llm.c" and tokens > MOST_TOKENS:
            raise ConfigError(
                f"dataset.samples_per_file={self.config.samples_per_file} makes a file of {tokens} tokens, but a "
                f"header of llm.c counts at most {MOST_TOKENS}",
                hint="set more and smaller files, or dataset.tokens.header=none",
            )

    # --- what a sample is ---

    def specs(self) -> list[ArraySpec]:
        shape = (self._windows.length,)
        if not self.options.targets:
            return [ArraySpec(STORED, self._dtype, shape)]
        return [ArraySpec(name, np.dtype(np.int64), shape) for name in (INPUTS, TARGETS)]

    def expected(self, sample: int) -> Sample:
        windows = self._windows
        tokens = self._generated(sample * windows.stride, windows.span)
        if not self.options.targets:
            return {STORED: tokens}
        return {INPUTS: tokens[:-1].astype(np.int64), TARGETS: tokens[1:].astype(np.int64)}

    def _generated(self, first: int, count: int) -> npt.NDArray[Any]:
        """``count`` tokens of the endless sequence of the data set, from number ``first`` on."""
        low, high = first // _BLOCK, -(-(first + count) // _BLOCK)
        words = np.empty((high - low) * _BLOCK, np.uint32)
        keys = np.arange(low, high, dtype=np.int64) % _BLOCKS
        payload.fill(words, self.seed, 0, keys, np.full(high - low, _BLOCK, np.int64))
        # The high half of the product is uniform below the vocabulary.
        tokens = (words[first - low * _BLOCK :][:count] * np.uint64(self.options.vocabulary)) >> np.uint64(32)
        return tokens.astype(self._dtype)

    def sample_bytes(self) -> float:
        return float(sum(self._windows.length * spec.dtype.itemsize for spec in self.specs()))

    def stored_bytes(self) -> float:
        samples = self.config.samples_per_file
        return (first_byte(self.options) + self._windows.tokens(samples) * self._dtype.itemsize) / samples

    def sharing(self) -> float:
        return self._windows.span * self._dtype.itemsize / self.stored_bytes()

    # --- files ---

    def layout_options(self) -> dict[str, Any]:
        options, windows = self.options, self._windows
        return {
            "format": self.name,
            "dtype": options.dtype,
            "windows": [windows.length, windows.stride, windows.span],
            "header": options.header,
            "vocabulary": options.vocabulary,
        }

    def write(self, path: Path, first_sample: int, num_samples: int, pool: Executor) -> None:
        begin, count = first_sample * self._windows.stride, self._windows.tokens(num_samples)

        def piece(low: int) -> npt.NDArray[Any]:
            return self._generated(begin + low, min(_PIECE, count - low))

        with path.open("wb") as file:
            if self.options.header == "llm.c":
                file.write(header_of(self.options.dtype, count))
            for tokens in in_order(pool, piece, range(0, count, _PIECE), _AHEAD):
                file.write(tokens.data)

    def inspect(self, path: Path) -> FileInfo:
        with closing(self._open(path)) as reader:
            return FileInfo(reader.num_samples, {"tokens": reader.tokens, "dtype": self.options.dtype})

    def open(self, path: Path, recorder: Recorder = NULL) -> TokensReader:
        return self._open(path)

    def _open(self, path: Path) -> TokensReader:
        return (MappedReader if self.options.memory_map else FileReader)(path, self.options)

    def stream(self, reader: Reader) -> Iterator[Sample]:
        if isinstance(reader, MappedReader):
            reader.keep_mapped()
        return super().stream(reader)

    def layout(self, path: Path) -> FileLayout:
        return file_layout(path, self.options)
