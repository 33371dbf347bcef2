"""Facts about a format that need no open file: its options and the quantities derived from them.

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
"""Option key and the values to try, in command-line syntax."""

Call = tuple[str, str]
"""Title and code of a library call."""

NO_LIBRARY_CALLS = "the engine reads samples without the HDF5 library"
OWN_TRANSFERS = "the engine limits its requests by loader.transfer_size"
WHOLE_FILES = "the engine reads each file whole"


@dataclass(frozen=True)
class Unused:
    """An option that an engine, or a format with its other options, does not use.

    Attributes:
        key: its key.
        reason: what happens instead, in the words of an error message.
        accepted: the only value that the engine accepts, as a tuple of one; empty: any value, which a note mentions.
        remedy: the setting to change; empty: the option itself, to the accepted value.
    """

    key: str
    reason: str
    accepted: tuple[Any, ...] = ()
    remedy: str = ""

    @property
    def advice(self) -> str:
        """The change of a setting that makes the configuration valid."""
        return self.remedy or f"set {self.key}={json.dumps(self.accepted[0]).strip(chr(34))}"


@dataclass(frozen=True)
class LayoutAdvice:
    """Change of the file layout that lowers the bytes read for a sample.

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
        based_on: name of the format of which its files are a special case, told apart by :meth:`recognises`; empty:
            they are not.
        suffixes: ends of file names that belong to the format, lower case.
        choices: choices in groups of ``conf/`` with which its users read it, such as ``{"access": "stream"}``; they
            take the place of the choice ``auto``.
        former: options of earlier releases, each with the option to set in its place, and the value of that option for
            each value of the earlier one.
        content: ``module:function`` that adds what a file holds to a dictionary of JSON-able values, from headers and
            framing; called with the path of a file that is not to be trusted, and the dictionary, which has ``path``,
            ``bytes`` and ``format``.  What it added before an error stays.
        describe: ``module:function`` that returns the ``DataDescription`` (``formats/core/data_description.py``) of a
            path: of one file, or of the folder that :meth:`recognises_folder` accepted.  It raises ``DataError`` for
            data that it cannot read.  Empty: files of this format cannot be described.
        recreate: ``module:function`` that returns the ``Recreation`` (``formats/core/recreation.py``) of existing
            files: the options with which this format generates files like them.  Empty: it generates none like them.
        replay: ``module:function`` that writes recorded samples (``formats/core/recorded_samples.py``) to a path, from
            which this format generates raw files and repeats the recorded calls on them.  Empty: it does not.
        replay_option: option of its group that names this file.
        takes_any_folder: a folder is one data set of this format, however it is arranged, if the user names the format.
        described_as: name of the format that reads existing files of this kind, unless ``dataset.format`` names this
            one; empty: this format.
        tool_files: names of files in its folders that only this tool reads, so that recordings of I/O leave them out.
        compares_files: that function takes the keyword ``files``, the sorted paths of all files of the data set, and
            looks among them for what a single file does not state.
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
    based_on: ClassVar[str] = ""
    suffixes: ClassVar[tuple[str, ...]] = ()
    choices: ClassVar[Mapping[str, str]] = {}
    former: ClassVar[Mapping[str, tuple[str, Mapping[str, str]]]] = {}
    content: ClassVar[str] = ""
    describe: ClassVar[str] = ""
    recreate: ClassVar[str] = ""
    replay: ClassVar[str] = ""
    replay_option: ClassVar[str] = ""
    described_as: ClassVar[str] = ""
    takes_any_folder: ClassVar[bool] = False
    tool_files: ClassVar[tuple[str, ...]] = ()
    compares_files: ClassVar[bool] = False

    # --- its options ---

    @property
    def option_group(self) -> str:
        """Name of the format's options below ``dataset``."""
        return self.group or self.name

    def key(self, option: str) -> str:
        """Full key of one of the format's options: ``dataset.<group>.<option>``."""
        return f"dataset.{self.option_group}.{option}"

    def check_options(self, config: Config, fail: Fail) -> None:
        """Raise if an option has a value that is invalid in every recipe, whatever its format.

        Args:
            config: a complete configuration.
            fail: raises the error; called with keys, problem and remedy.
        """

    def check(self, config: Config, fail: Fail) -> None:
        """Raise if no file of this format can be written or read with these options; called for the recipe's format.

        Args:
            config: a complete configuration.
            fail: raises the error; called with keys, problem and remedy.
        """

    def unused(self, config: Config) -> Sequence[Unused]:
        """Options that have no effect on reading because of the others; a note mentions those of the command line."""
        return ()

    def gpu_option(self, config: Config) -> str:
        """The setting by which a GPU decodes samples, as ``option=value``; empty: none does."""
        return ""

    # --- its files, when the decoupled engine reads their bytes itself ---

    def check_decoupled(self, config: Config, fail: Fail) -> None:
        """Raise if the decoupled engine cannot read this format with these options.

        Args:
            config: a complete configuration.
            fail: raises the error; called with keys, problem and remedy.
        """

    def unused_by_decoupled(self, config: Config) -> Sequence[Unused]:
        """Options that the decoupled engine does not use, because it does not make the library calls that they set."""
        return ()

    def ranges_past_cache(self, config: Config) -> bool:
        """Whether byte ranges of this format's files can be read with ``O_DIRECT``."""
        return True

    def plain_ranges(self, config: Config) -> bool:
        """Whether samples are stored as they are used: as byte ranges that no CPU decodes or takes apart."""
        return False

    # --- its files, as the kernel sees them ---

    def maps_files(self, config: Config) -> bool:
        """Whether samples are read by page faults on memory-mapped files instead of read calls."""
        return self.unmapped is not None and bool(self.value(config, self.unmapped[0]) != self.unmapped[1])

    def keeps_files(self, config: Config) -> bool:
        """Whether open files stay open between samples, as ``loader.max_open_files`` allows."""
        return True

    # --- a smaller experiment ---

    def scale(self, work: Scaler) -> None:
        """Make generated files smaller where fewer files and samples do not suffice; the I/O pattern stays the same."""

    def first_touch(self, work: Scaler, before: Config, samples: int) -> None:
        """Limit the library's caches so that reads of a small file behave like reads of the full-size file.

        Args:
            work: takes the changes.
            before: the configuration as published.
            samples: that a rank reads in the scaled run.
        """

    # --- tuning and advice ---

    def axes(self, config: Config) -> Iterator[Axis]:
        """Read options to try in a study; none of them changes the data set."""
        return iter(())

    def calls(self, config: Config) -> Iterator[Call]:
        """Library calls that write and open files of this format."""
        return iter(())

    def layout_advice(self, config: Config, amplification: float) -> LayoutAdvice | None:
        """Change of an option by which reads of samples touch fewer unneeded bytes; ``None`` if none is known.

        Args:
            config: of the run.
            amplification: bytes that were read for each byte of a sample.
        """
        return None

    def larger_transfers(self, config: Config, wanted: int, most: int) -> tuple[str, int, int] | None:
        """Option that makes read calls larger.

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
        """Whether a file without magic bytes has this format, judged by its content and not only by its suffix.

        If a format is :attr:`based_on` another: whether a file of the other one is its special case.

        Args:
            path: of a regular file.
            head: its first 16 bytes, fewer if it is shorter.
        """
        return False

    def recognises_folder(self, path: Path, names: Sequence[str]) -> bool:
        """Whether a folder as a whole is one data set of this format, such as a Zarr store.

        Args:
            path: of the folder.
            names: names of its entries, sorted; there may be hundreds of thousands.
        """
        return False

    def content_text(self, content: Mapping[str, Any]) -> str:
        """Summary of the keys that reading the content added; empty if there are none."""
        return ""
