"""Facts about WebDataset shards that need no open file."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from dlio_torch.formats.core.call_text import call_text
from dlio_torch.formats.core.content import least
from dlio_torch.formats.core.facts import OWN_TRANSFERS, Call, FormatFacts, Unused
from dlio_torch.formats.webdataset.options import WebdatasetConfig
from dlio_torch.units import counted

if TYPE_CHECKING:
    from dlio_torch.config.check import Fail
    from dlio_torch.config.schema import Config

_SHARDS = 100  # of the pool in which shards are shuffled, in the library's examples


class WebdatasetFacts(FormatFacts):
    """Facts about format ``webdataset``."""

    name: ClassVar[str] = "webdataset"
    format: ClassVar[str] = "dlio_torch.formats.webdataset.format:WebdatasetFormat"
    options: ClassVar[type | None] = WebdatasetConfig
    transfer_option: ClassVar[str] = "buffer_bytes"
    uncompressed: ClassVar[tuple[str, Any] | None] = ("compression", "none")
    suffixes: ClassVar[tuple[str, ...]] = (".tar", ".tar.gz", ".tgz", ".tar.bz2", ".tar.xz")
    choices: ClassVar[Mapping[str, str]] = {"access": "stream_pool"}
    content: ClassVar[str] = "dlio_torch.formats.webdataset.describe:read_content"
    describe: ClassVar[str] = "dlio_torch.formats.webdataset.describe:describe"
    recreate: ClassVar[str] = "dlio_torch.formats.webdataset.recreate:recreate"

    def states_encoding(self, part: str) -> bool:
        from dlio_torch.formats.webdataset.members import kind_of_extension

        return kind_of_extension(part) != "stored"

    def check_decoupled(self, config: Config, fail: Fail) -> None:
        from dlio_torch.formats.webdataset.members import kind_of_extension
        from dlio_torch.formats.webdataset.options import IMAGE_AXES

        decode = config.dataset.of(WebdatasetConfig).decode
        for field in config.dataset.fields:
            image = kind_of_extension(field.name.partition(";")[0]) == "image"
            if image and decode in IMAGE_AXES and field.length_mean:
                fail(
                    ["loader.engine", self.key("decode")],
                    f"the engine lays out a batch before it is decoded, and images {field.name} of any size have no "
                    "known number of pixels",
                    f"set {self.key('decode')}=basic to read stored bytes, or give {field.name} a shape",
                )

    def unused_by_decoupled(self, config: Config) -> Sequence[Unused]:
        return (Unused(self.key("buffer_bytes"), OWN_TRANSFERS),)

    def ranges_past_cache(self, config: Config) -> bool:
        return False

    def calls(self, config: Config) -> Iterator[Call]:
        decode = config.dataset.of(WebdatasetConfig).decode
        names = ", ".join(repr(field.name) for field in config.dataset.fields)
        steps = {"none": "", "basic": ".decode()"}.get(decode, f'.decode("{decode}")')
        shuffled = f".shuffle({config.access.shuffle_pool})" if config.access.shuffle_pool else ""
        shards = _SHARDS if config.access.order == "shuffled" else False
        source = call_text("webdataset.WebDataset", ["urls"], {"shardshuffle": shards})
        yield "WebDataset(...)", f"{source}{shuffled}{steps}.to_tuple({names})"

    def recognises(self, path: Path, head: bytes) -> bool:
        from dlio_torch.formats.webdataset.tar_headers import BLOCK, COMPRESSED, is_header

        if head.startswith(COMPRESSED):
            return path.name.lower().endswith(self.suffixes)
        with open(path, "rb") as file:
            return is_header(file.read(BLOCK))

    def content_text(self, content: Mapping[str, Any]) -> str:
        if not content.get("samples"):
            return ""
        members = ", ".join(content["members"])
        return f"{least(content)}{counted(content['samples'], 'sample')} of members {members}"
