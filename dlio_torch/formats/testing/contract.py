"""Contract test suite for formats, which ships with the package.

A format's own tests subclass :class:`FormatContract` and name configurations; pytest then runs every
check with every one of them::

    class TestMyFormat(FormatContract):
        configs = {
            "small": DatasetConfig(format="mine", fields=[FieldConfig(shape=[4])]),
            "large": DatasetConfig(format="mine", fields=[FieldConfig(shape=[1 << 16])]),
        }

The format is made through the registry, by name, as a run makes it: a format of an outside package
needs its entry point.  A format without files subclasses :class:`ReadingContract`.  Nothing here
imports pytest; the checks raise AssertionError with a line that says what was broken.  What they are
made of can be imported from here for a format's own tests.
"""

from __future__ import annotations

import json
import os
from contextlib import closing
from pathlib import Path

from dlio_torch.config.schema import DatasetConfig
from dlio_torch.errors import DataError
from dlio_torch.formats.core.batch import BatchBuffer
from dlio_torch.formats.core.format import Format
from dlio_torch.formats.testing.damage import DamageContract
from dlio_torch.formats.testing.helpers import assert_equal, check_batch, is_open, read, refusal, write
from dlio_torch.formats.testing.reading import FIRST, SEED, ReadingContract
from dlio_torch.ownership.names import FileNames, numbers

__all__ = [
    "FIRST",
    "SEED",
    "FormatContract",
    "ReadingContract",
    "assert_equal",
    "check_batch",
    "is_open",
    "read",
    "refusal",
    "write",
]


class FormatContract(DamageContract):
    """The tests that each format with files passes."""

    def written(self, fmt: Format, folder: Path) -> Path:
        """Writes a file with the samples from 0 on."""
        return write(fmt, folder / f"written{fmt.suffix}", 0, self.num_samples)

    def test_inspect_counts_samples(self, config: DatasetConfig, tmp_path: Path) -> None:
        fmt = self.make(config)
        info = fmt.inspect(self.written(fmt, tmp_path))
        assert info.num_samples == self.num_samples
        assert json.dumps(info.details), "FileInfo.details does not survive JSON"

    def test_the_split_over_files_does_not_matter(self, config: DatasetConfig, tmp_path: Path) -> None:
        fmt = self.make(config)
        cut = max(1, self.num_samples // 3)
        parts = [(FIRST, cut), (FIRST + cut, max(1, self.num_samples - cut))]
        for number, (first, count) in enumerate(parts):
            path = write(fmt, tmp_path / f"part{number}{fmt.suffix}", first, count)
            with closing(fmt.open(path)) as reader:
                assert reader.num_samples in (None, count)
                check_batch(fmt, read(fmt, reader, range(count)), range(first, first + count))

    def test_what_lies_beside_a_file_is_named(self, config: DatasetConfig, tmp_path: Path) -> None:
        fmt = self.make(config)
        # The name that a generation gives a file at first.
        path = write(fmt, tmp_path / f".written{fmt.suffix}.1.part", 0, self.num_samples)
        files = {other.name for other in tmp_path.iterdir() if other.name.startswith(".")}
        named = {path.name, *(path.name + suffix for suffix in fmt.companions())}
        assert files == named, f"write() creates {sorted(files)}, but companions() names {sorted(named)}"

    def test_what_write_leaves_is_listed(self, config: DatasetConfig, tmp_path: Path) -> None:
        fmt = self.make(config)
        names = FileNames(fmt.listed(f"written{numbers(7)}"))
        for stem in ("written7", ".written7"):  # with its name, and as a generation begins it
            write(fmt, tmp_path / (f"{stem}{fmt.suffix}" + (".1.part" if stem[0] == "." else "")), 0, self.num_samples)
        for path in tmp_path.rglob("*"):
            parts = path.relative_to(tmp_path).parts
            listed = names.has_folder(parts) if path.is_dir() else names.has_file(parts)
            assert listed, (
                f"write() creates {'/'.join(parts)}, which listed() does not cover, so that `clean` would not remove it"
            )

    def test_bytes_do_not_depend_on_the_threads(self, config: DatasetConfig, tmp_path: Path) -> None:
        single, parallel = (self._bytes(self.make(config), tmp_path / str(threads), threads) for threads in (1, 4))
        assert single == parallel, "the bytes of a file depend on the number of threads"

    def test_layout_options_tell_bytes_apart(self, config: DatasetConfig, tmp_path: Path) -> None:
        fmt = self.make(config)
        mine = self._bytes(fmt, tmp_path / "mine")
        for name, config_b in self.configs.items():
            other = self.make(config_b)
            if other.layout_options() == fmt.layout_options():
                theirs = self._bytes(other, tmp_path / name)
                assert theirs == mine, f"{name!r}: equal layout_options() give files of different bytes"

    def test_stored_bytes_are_estimated(self, config: DatasetConfig, tmp_path: Path) -> None:
        fmt = self.make(config)
        size = sum(len(content) for content in self._bytes(fmt, tmp_path / "files").values())
        estimate = fmt.stored_bytes() * self.num_samples
        assert abs(estimate - size) <= 0.25 * size, (
            f"stored_bytes() estimates {estimate:.0f} bytes, but the files have {size}"
        )

    def test_closing_leaves_nothing_open(self, config: DatasetConfig, tmp_path: Path) -> None:
        fmt = self.make(config)
        path = self.written(fmt, tmp_path)
        fmt.inspect(path)
        assert not is_open(path), "inspect() left the file open"
        reader = fmt.open(path)
        batch = read(fmt, reader, [0])
        reader.close()
        assert not is_open(path), "close() left the file open"
        check_batch(fmt, batch, [0])

    def test_reading_beyond_the_end(self, config: DatasetConfig, tmp_path: Path) -> None:
        fmt = self.make(config)
        path = self.written(fmt, tmp_path)
        with closing(fmt.open(path)) as reader:
            for first, count in [(self.num_samples, 1), (self.num_samples - 1, 2), (-1, 1)]:
                line = refusal(lambda: reader.read(first, count, BatchBuffer(fmt.specs(), range(count)), 0))  # noqa: B023
                assert str(path) in line, (
                    f"samples {first} to {first + count - 1}: the error message {line!r} does not name the file"
                )
            check_batch(fmt, read(fmt, reader, [0]), [0])

    def test_a_missing_file(self, config: DatasetConfig, tmp_path: Path) -> None:
        path = self._alone(config, tmp_path)
        self._refuses(config, path, "does not exist")

    def test_an_empty_file(self, config: DatasetConfig, tmp_path: Path) -> None:
        path = self._alone(config, tmp_path)
        path.write_bytes(b"")
        self._refuses(config, path)

    def test_a_file_of_another_format(self, config: DatasetConfig, tmp_path: Path) -> None:
        path = self._alone(config, tmp_path)
        # Binary, and long enough for any header; no format has a magic number like this.
        path.write_bytes(bytes(range(255, -1, -1)) * 64)
        self._refuses(config, path)

    def test_a_folder(self, config: DatasetConfig, tmp_path: Path) -> None:
        path = self._alone(config, tmp_path)
        path.mkdir()
        self._refuses(config, path)

    def test_a_truncated_file(self, config: DatasetConfig, tmp_path: Path) -> None:
        fmt = self.make(config)
        path = self.written(fmt, tmp_path)
        # Of a folder, the largest file in it: the data.
        inside = [inner for inner in path.rglob("*") if inner.is_file()]
        largest = path if path.is_file() else max(inside, key=lambda inner: inner.stat().st_size)
        os.truncate(largest, largest.stat().st_size // 2)

        # A format without a table of contents may find fewer samples, but not the last one.
        def inspect_file() -> None:
            if fmt.inspect(path).num_samples < self.num_samples:
                raise DataError(f"{path} holds fewer samples than expected")

        def read_last() -> None:
            with closing(fmt.open(path)) as reader:
                read(fmt, reader, [self.num_samples - 1])

        for attempt in (inspect_file, read_last):
            line = refusal(attempt, closed=path)
            assert str(path) in line, f"the error message {line!r} does not name the file"

    def _alone(self, config: DatasetConfig, folder: Path) -> Path:
        """Path of a missing file whose companion files exist and are intact."""
        fmt = self.make(config)
        path = folder / f"alone{fmt.suffix}"
        if fmt.companions():
            written = self.written(fmt, folder)
            for suffix in fmt.companions():
                written.with_name(written.name + suffix).replace(path.with_name(path.name + suffix))
        return path

    def _bytes(self, fmt: Format, folder: Path, threads: int = 2) -> dict[str, bytes]:
        """Content by name of the files that ``write`` creates in an empty folder."""
        folder.mkdir()
        write(fmt, folder / f"written{fmt.suffix}", 0, self.num_samples, threads)
        return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}

    def _refuses(self, config: DatasetConfig, path: Path, words: str = "") -> None:
        fmt = self.make(config)

        def use() -> None:
            with closing(fmt.open(path)) as reader:
                read(fmt, reader, [0])

        # Opening alone refuses most, but a format may open a file only for each use.
        for attempt in (lambda: fmt.inspect(path), use):
            line = refusal(attempt, closed=path)
            assert str(path) in line, f"the error message {line!r} does not name the file"
            assert words in line, f"the error message {line!r} does not contain {words!r}"
