"""Facts about flat files of token ids that need no open file."""

from __future__ import annotations

import struct
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar

from dlio_torch.formats.core.call_text import CodeText, call_text
from dlio_torch.formats.core.facts import Axis, Call, FormatFacts, Unused
from dlio_torch.formats.tokens.options import TokensConfig
from dlio_torch.units import counted

if TYPE_CHECKING:
    from dlio_torch.config.check import Fail
    from dlio_torch.config.schema import Config

_OWN_READS = "the engine reads samples by their extents and maps no files"


HEADER_BYTES = 256 * 4
KINDS = {(20240520, 1): "uint16", (20240801, 7): "uint32"}
"""Magic number and version -> element type; of the tokenizers of GPT-2 and Llama 3."""
MAGICS = tuple(struct.pack("<2i", *kind) for kind in KINDS)
"""First bytes of a file with a header."""


class TokensFacts(FormatFacts):
    """Facts about format ``tokens``."""

    name: ClassVar[str] = "tokens"
    format: ClassVar[str] = "dlio_torch.formats.tokens.format:TokensFormat"
    options: ClassVar[type | None] = TokensConfig
    unmapped: ClassVar[tuple[str, Any] | None] = ("memory_map", False)
    magics: ClassVar[tuple[bytes, ...]] = MAGICS
    suffixes: ClassVar[tuple[str, ...]] = (".bin",)
    choices: ClassVar[Mapping[str, str]] = {"access": "shuffled"}
    content: ClassVar[str] = "dlio_torch.formats.tokens.describe:read_content"
    describe: ClassVar[str] = "dlio_torch.formats.tokens.describe:describe"
    recreate: ClassVar[str] = "dlio_torch.formats.tokens.recreate:recreate"

    def check(self, config: Config, fail: Fail) -> None:
        options = config.dataset.of(TokensConfig)
        if options.header == "llm.c" and options.dtype not in KINDS.values():
            fail(
                [self.key("header"), self.key("dtype")],
                f"a header of llm.c states tokens of {' or '.join(KINDS.values())} only",
                f"set {self.key('header')}=none",
            )

    def unused_by_decoupled(self, config: Config) -> Sequence[Unused]:
        return (Unused(self.key("memory_map"), _OWN_READS, (False,)),)

    def axes(self, config: Config) -> Iterator[Axis]:
        yield self.key("memory_map"), ("true", "false")
        if config.dataset.of(TokensConfig).memory_map:
            yield self.key("reopen"), ("batch", "none")

    def calls(self, config: Config) -> Iterator[Call]:
        options = config.dataset.of(TokensConfig)
        start = HEADER_BYTES if options.header == "llm.c" else 0
        dtype = CodeText(f"numpy.{options.dtype}")
        if options.memory_map:
            offset = {"offset": start} if start else {}
            yield "memmap(...)", call_text("numpy.memmap", ["path"], {"dtype": dtype, "mode": "r", **offset})
            return
        keywords = {"dtype": dtype, "count": options.window + options.targets, "offset": CodeText("at")}
        yield "fromfile(...)", call_text("numpy.fromfile", ["path"], keywords)

    def content_text(self, content: Mapping[str, Any]) -> str:
        return f"{counted(content['tokens'], 'token')} of {content['dtype']}" if "tokens" in content else ""
