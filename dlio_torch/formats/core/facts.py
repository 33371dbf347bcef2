"""Facts about a format that need no file: its options, and figures that follow from them.

Configuration, tuning, advice and reports know formats by this protocol alone.  Each format subclasses
:class:`FormatFacts` in its ``facts.py`` and overrides what is different for it; the registry names that class.
A module of facts imports neither torch nor the format's library.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

if TYPE_CHECKING:
    from dlio_torch.config.check import Fail
    from dlio_torch.config.scaling import Scaler
    from dlio_torch.config.schema import Config

Axis = tuple[str, tuple[str, ...]]
"""A key, and the values that are worth trying, as the command line takes them."""

Call = tuple[str, str]
"""Title and text of a call of a library."""

NO_LIBRARY_CALLS = "it makes no calls of the HDF5 library to read samples"
OWN_TRANSFERS = "its requests are of loader.transfer_size at the most"
WHOLE_FILES = "it reads such a file whole"


@dataclass(frozen=True)
class Unused:
    """An option that an engine does not use.

    Attributes:
        key: its key.
        reason: the engine's own behaviour, in the words of an error message.
        accepted: the only value that the engine accepts, as a tuple of one; empty: any value, which a note mentions.
        remedy: the setting to change; empty: the option itself, to the accepted value.
    """

    key: str
    reason: str
    accepted: tuple[Any, ...] = ()
    remedy: str = ""

    @property
    def advice(self) -> str:
        """The change of the configuration that makes it valid."""
        return self.remedy or f"set {self.key}={json.dumps(self.accepted[0]).strip(chr(34))}"


@dataclass(frozen=True)
class LayoutAdvice:
    """A change of layout that reads fewer bytes for a sample.

    Attributes:
        key: option to change.
        value: as the command line takes it.
        reason: what causes the read amplification today.
        amplification: bytes read for each byte of a sample, at best.
    """

    key: str
    value: str
    reason: str
    amplification: float = 1.0


class FormatFacts:
    """Facts about one format; the defaults are those of a format without options.

    Attributes:
        name: the name in ``dataset.format``.
        format: ``module:Class`` of the :class:`~dlio_torch.formats.core.format.Format`, imported at its first use.
        options: frozen dataclass of the format's options; ``None``: it has none.
        group: name of these options below ``dataset``; formats of one family may share it; empty: ``name``.
        in_memory: its samples are made in memory, no file is read.
        one_lock: one lock of the library serialises the reads of a process.
        unordered: why ``access.pattern=stream`` is impossible; empty: samples have an order in their file.
        posix_only: options that say how POSIX calls read, with the value that leaves MPI-IO free.
        transfer_option: option with the size of a read call; empty: there is none.
        uncompressed: option of the compression, and its value without one; ``None``: samples are stored as they are.
        unmapped: option that maps files into memory, and its value that does not; ``None``: files are never mapped.
        magics: first bytes of a file, one of them.
        suffixes: ends of file names that belong to the format, lower case.
        content: ``module:function`` that adds what a file holds to a dictionary of JSON-able values, from headers and
            framing; called with the path of a file that is not to be trusted, and the dictionary, which has ``path``,
            ``bytes`` and ``format``.  What it added before an error stays.
    """

    name: ClassVar[str]
    format: ClassVar[str]
    options: ClassVar[type | None] = None
    group: ClassVar[str] = ""
    in_memory: ClassVar[bool] = False
    one_lock: ClassVar[bool] = False
    unordered: ClassVar[str] = ""
    posix_only: ClassVar[Mapping[str, Any]] = {}
    transfer_option: ClassVar[str] = ""
    uncompressed: ClassVar[tuple[str, Any] | None] = None
    unmapped: ClassVar[tuple[str, Any] | None] = None
    magics: ClassVar[tuple[bytes, ...]] = ()
    suffixes: ClassVar[tuple[str, ...]] = ()
    content: ClassVar[str] = ""

    # --- its options ---

    @property
    def option_group(self) -> str:
        """Name of the format's options below ``dataset``."""
        return self.group or self.name

    def key(self, option: str) -> str:
        """The whole key of one of the format's options: ``dataset.<group>.<option>``."""
        return f"dataset.{self.option_group}.{option}"

    def check_options(self, config: Config, fail: Fail) -> None:
        """Refuse values that are never right, whatever the format of the recipe.

        Args:
            config: a complete configuration.
            fail: raises the error; called with keys, problem and remedy.
        """

    def check(self, config: Config, fail: Fail) -> None:
        """Refuse what no file of this format can be made of, or be read from; called for the recipe's format.

        Args:
            config: a complete configuration.
            fail: raises the error; called with keys, problem and remedy.
        """

    # --- its files, when the decoupled engine reads their bytes itself ---

    def check_decoupled(self, config: Config, fail: Fail) -> None:
        """Refuse what the decoupled engine cannot read of this format.

        Args:
            config: a complete configuration.
            fail: raises the error; called with keys, problem and remedy.
        """

    def unused_by_decoupled(self, config: Config) -> Sequence[Unused]:
        """Options of calls that the decoupled engine does not make."""
        return ()

    def ranges_past_cache(self, config: Config) -> bool:
        """Whether byte ranges of its files can be read by ``O_DIRECT``."""
        return True

    # --- its files, as the kernel sees them ---

    def maps_files(self, config: Config) -> bool:
        """Whether samples come by page faults of mapped files rather than by read calls."""
        return self.unmapped is not None and bool(self.value(config, self.unmapped[0]) != self.unmapped[1])

    # --- a smaller experiment ---

    def scale(self, work: Scaler) -> None:
        """Make generated files smaller where amounts of files and samples cannot; the shape of the I/O stays."""

    def first_touch(self, work: Scaler, before: Config, samples: int) -> None:
        """Limit caches of the library, so that a small file is read as the published one is.

        Args:
            work: takes the changes.
            before: the configuration as published.
            samples: that a rank reads in the scaled run.
        """

    # --- tuning and advice ---

    def axes(self, config: Config) -> Iterator[Axis]:
        """Options of reading that are worth trying; none of them changes the data set."""
        return iter(())

    def calls(self, config: Config) -> Iterator[Call]:
        """Calls of the library that write and open such files."""
        return iter(())

    def layout_advice(self, config: Config, amplification: float) -> LayoutAdvice | None:
        """The option that makes reads of samples touch more than they need; ``None``: none is known.

        Args:
            config: of the run.
            amplification: bytes that were read for each byte of a sample.
        """
        return None

    def larger_transfers(self, config: Config, wanted: int, most: int) -> tuple[str, int, int] | None:
        """The option that makes read calls larger.

        Args:
            config: of the run.
            wanted: bytes of a call that would suit a sample.
            most: bytes of a call that are advised at most.

        Returns:
            Key, present value and the value to set, in bytes; ``None``: no option does that.
        """
        if not self.transfer_option:
            return None
        return self.key(self.transfer_option), int(self.value(config, self.transfer_option)), wanted

    def value(self, config: Config, option: str) -> Any:
        """The value of one of the format's options."""
        return getattr(getattr(config.dataset, self.option_group), option)

    # --- what a file holds ---

    def recognises(self, path: Path, head: bytes) -> bool:
        """Whether a file without the format's magic bytes is of this format, by more than the end of its name.

        Args:
            path: of a regular file.
            head: its first 16 bytes, fewer if it is shorter.
        """
        return False

    def content_text(self, content: Mapping[str, Any]) -> str:
        """A summary of the keys that ``content`` added; empty: it added none."""
        return ""
