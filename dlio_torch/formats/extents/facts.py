"""Facts about recorded requests that need no open folder."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar

from dlio_torch.formats.core.call_text import call_text
from dlio_torch.formats.core.facts import Call, FormatFacts
from dlio_torch.formats.extents.options import ExtentsConfig

if TYPE_CHECKING:
    from dlio_torch.config.schema import Config

REQUESTS = "requests.npz"
"""Name of the file in a folder with the requests on its files."""
FILES = "files"
"""Name of the subfolder with the raw files."""


class ExtentsFacts(FormatFacts):
    """Facts about format ``extents``."""

    name: ClassVar[str] = "extents"
    format: ClassVar[str] = "dlio_torch.formats.extents.format:ExtentsFormat"
    options: ClassVar[type | None] = ExtentsConfig
    suffixes: ClassVar[tuple[str, ...]] = (".extents",)
    describe: ClassVar[str] = "dlio_torch.formats.extents.describe:describe"
    replay: ClassVar[str] = "dlio_torch.formats.extents.recorded_calls:write_recorded_calls"
    replay_option: ClassVar[str] = "requests"
    tool_files: ClassVar[tuple[str, ...]] = (REQUESTS,)

    def plain_ranges(self, config: Config) -> bool:
        return True

    def maps_files(self, config: Config) -> bool:
        from dlio_torch.errors import DataError
        from dlio_torch.formats.extents.requests import RequestCall
        from dlio_torch.formats.extents.requests_file import kept_requests

        try:
            requests = kept_requests(config.dataset.of(ExtentsConfig).requests)
        except DataError:  # the folder itself tells when it is opened
            return False
        return RequestCall.TOUCH in requests.request_call

    def calls(self, config: Config) -> Iterator[Call]:
        yield "os.pread(...)", call_text("os.pread", ["descriptor", "size", "offset"], {})

    def recognises_folder(self, path: Path, names: Sequence[str]) -> bool:
        return REQUESTS in names and FILES in names
