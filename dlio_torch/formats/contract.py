"""The contract test suite: what every format must keep.  It ships with the package.

A format's own tests subclass :class:`FormatContract` and name configurations; pytest then runs every
check with every one of them::

    class TestMyFormat(FormatContract):
        configs = {
            "small": DatasetConfig(format="mine", fields=[FieldConfig(shape=[4])]),
            "large": DatasetConfig(format="mine", fields=[FieldConfig(shape=[1 << 16])]),
        }

The format is made through the registry, by name, as a run makes it: a format of an outside package
needs its entry point.  A format without files subclasses :class:`ReadingContract`.  Nothing here
imports pytest; the checks raise AssertionError with a line that says what was broken.
"""

from __future__ import annotations

import json
import os
import pickle
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any, ClassVar

import torch

from dlio_torch.config.schema import DatasetConfig
from dlio_torch.errors import DataError
from dlio_torch.formats.base import Format, Reader
from dlio_torch.formats.batch import INDEX, LENGTHS, Batch, BatchBuffer, samples_of
from dlio_torch.formats.registry import create

SEED = 20
FIRST = 1 << 40  # evaluation samples are numbered from here on


class ReadingContract:
    """What a format must keep whether it has files or not.

    Attributes:
        configs: configurations to run every check with, by a short name.
        num_samples: samples of the files that are written; 1 for formats whose files hold no more.
    """

    configs: ClassVar[Mapping[str, DatasetConfig]] = {}
    num_samples: ClassVar[int] = 7

    def pytest_generate_tests(self, metafunc: Any) -> None:
        """Called by pytest: runs each check with each configuration."""
        assert self.configs, f"{type(self).__name__} names no configs"
        metafunc.parametrize("config", list(self.configs.values()), ids=list(self.configs))

    # --- what the checks are made of ---

    def make(self, config: DatasetConfig, seed: int = SEED) -> Format:
        """The format of ``config``, for files of ``num_samples`` samples."""
        return create(replace(config, samples_per_file=self.num_samples), seed)

    def written(self, fmt: Format, folder: Path) -> Path:
        """A file with the samples from 0 on; formats without files have nothing to write."""
        return folder / "no_file"

    # --- checks ---

    def test_reads_what_is_expected(self, config: DatasetConfig, tmp_path: Path) -> None:
        fmt = self.make(config)
        with closing(fmt.open(self.written(fmt, tmp_path))) as reader:
            assert reader.num_samples in (None, self.num_samples), f"the reader counts {reader.num_samples} samples"
            for sample in range(self.num_samples):
                check_batch(fmt, read(fmt, reader, [sample]), [sample])

    def test_any_order_gives_the_same(self, config: DatasetConfig, tmp_path: Path) -> None:
        fmt = self.make(config)
        order = [*range(self.num_samples - 1, -1, -1), 0, self.num_samples - 1, 0]
        with closing(fmt.open(self.written(fmt, tmp_path))) as reader:
            check_batch(fmt, read(fmt, reader, order), order)

    def test_a_run_equals_single_reads(self, config: DatasetConfig, tmp_path: Path) -> None:
        fmt = self.make(config)
        with closing(fmt.open(self.written(fmt, tmp_path))) as reader:
            last = self.num_samples - 1
            for first, count in [(0, self.num_samples), (min(1, last), max(1, last - 1)), (last, 1)]:
                samples = list(range(first, first + count))
                buffer = BatchBuffer(fmt.specs(), [99, *samples, 98])
                # Not at the start of the buffer, between two samples that are read by themselves.
                reader.read(0, 1, buffer, 0)
                reader.read(first, count, buffer, 1)
                reader.read(0, 1, buffer, count + 1)
                assert_equal(buffer.finish(), read(fmt, reader, [0, *samples, 0], indices=[99, *samples, 98]))

    def test_tensors_are_as_specified(self, config: DatasetConfig, tmp_path: Path) -> None:
        fmt = self.make(config)
        with closing(fmt.open(self.written(fmt, tmp_path))) as reader:
            batch = read(fmt, reader, [self.num_samples - 1, 0])
        names = [spec.name for spec in fmt.specs()]
        assert len(set(names)) == len(names) > 0, f"arrays are named {names}"
        lengths = [spec.name + LENGTHS for spec in fmt.specs() if spec.variable]
        assert set(batch) == {INDEX, *names, *lengths}, f"the batch holds {sorted(batch)}"
        for spec in fmt.specs():
            tensor = batch[spec.name]
            rows = int(batch[spec.name + LENGTHS].sum()) if spec.variable else 2
            records = spec.dtype.fields is not None
            shape = (rows, *spec.shape, spec.dtype.itemsize) if records else (rows, *spec.shape)
            dtype = "uint8" if records else spec.dtype.name
            assert tuple(tensor.shape) == shape, f"{spec.name} has shape {tuple(tensor.shape)}, specified: {shape}"
            assert str(tensor.dtype) == f"torch.{dtype}", f"{spec.name} holds {tensor.dtype}, specified: {dtype}"
            assert tensor.is_contiguous(), f"{spec.name} is not contiguous"

    def test_batches_are_the_reader_s_no_more(self, config: DatasetConfig, tmp_path: Path) -> None:
        fmt = self.make(config)
        rows = [0, self.num_samples - 1]
        with closing(fmt.open(self.written(fmt, tmp_path))) as reader:
            first = read(fmt, reader, rows)
            for tensor in first.values():
                tensor.zero_()
            check_batch(fmt, read(fmt, reader, rows), rows)
            assert not any(tensor.any() for tensor in first.values()), "a later read wrote into an earlier batch"

    def test_content_is_a_function_of_seed_and_sample(self, config: DatasetConfig, tmp_path: Path) -> None:
        one, two, other = self.make(config), self.make(config), self.make(config, SEED + 1)
        for sample in [3, 0, FIRST]:
            assert one.differences(sample, two.expected(sample)) is None, f"sample {sample} differs from itself"
        assert one.differences(0, other.expected(0)) is not None, "another seed gives the same sample"
        assert one.specs() == other.specs()

    def test_survives_pickling(self, config: DatasetConfig, tmp_path: Path) -> None:
        fmt = self.make(config)
        fmt.use_parameters(fmt.parameters())
        path = self.written(fmt, tmp_path)
        copy: Format = pickle.loads(pickle.dumps(fmt))
        with closing(copy.open(path)) as reader:
            check_batch(fmt, read(copy, reader, [self.num_samples // 2]), [self.num_samples // 2])
        assert copy.parameters() == fmt.parameters()

    def test_two_readers_at_once(self, config: DatasetConfig, tmp_path: Path) -> None:
        fmt = self.make(config)
        path = self.written(fmt, tmp_path)

        def read_all(order: Sequence[int]) -> None:
            with closing(fmt.open(path)) as reader:
                for sample in order:
                    check_batch(fmt, read(fmt, reader, [sample]), [sample])

        order = list(range(self.num_samples))
        with ThreadPoolExecutor(2) as pool:
            for future in [pool.submit(read_all, order), pool.submit(read_all, order[::-1])]:
                future.result()

    def test_sizes_and_options_are_sound(self, config: DatasetConfig, tmp_path: Path) -> None:
        fmt = self.make(config)
        assert fmt.sample_bytes() > 0
        options = fmt.layout_options()
        assert json.loads(json.dumps(options)) == options, "layout_options() does not survive JSON"
        parameters = fmt.parameters()
        assert json.loads(json.dumps(parameters)) == parameters, "parameters() does not survive JSON"


class FormatContract(ReadingContract):
    """What a format with files must keep."""

    def written(self, fmt: Format, folder: Path) -> Path:
        """A file with the samples from 0 on."""
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
        found = {other.name for other in tmp_path.iterdir() if other.name.startswith(".")}
        named = {path.name, *(path.name + suffix for suffix in fmt.companions())}
        assert found == named, f"write() leaves {sorted(found)}, companions() names {sorted(named)}"

    def test_bytes_do_not_depend_on_the_threads(self, config: DatasetConfig, tmp_path: Path) -> None:
        one, four = (self._bytes(self.make(config), tmp_path / str(threads), threads) for threads in (1, 4))
        assert one == four, "the bytes of a file depend on the number of threads"

    def test_layout_options_tell_bytes_apart(self, config: DatasetConfig, tmp_path: Path) -> None:
        fmt = self.make(config)
        mine = self._bytes(fmt, tmp_path / "mine")
        for name, config_b in self.configs.items():
            other = self.make(config_b)
            if other.layout_options() == fmt.layout_options():
                theirs = self._bytes(other, tmp_path / name)
                assert theirs == mine, f"{name!r} has the same layout_options() and other bytes"

    def test_stored_bytes_are_estimated(self, config: DatasetConfig, tmp_path: Path) -> None:
        fmt = self.make(config)
        size = sum(len(content) for content in self._bytes(fmt, tmp_path / "files").values())
        estimate = fmt.stored_bytes() * self.num_samples
        assert abs(estimate - size) <= 0.25 * size, f"stored_bytes() gives {estimate:.0f} bytes, the files have {size}"

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
                assert str(path) in line, f"samples {first} to {first + count - 1}: {line!r} does not name the file"
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
        with path.open("r+b") as file:
            file.truncate(path.stat().st_size // 2)

        # A format without a table of contents may find fewer samples, but not the last one.
        def look() -> None:
            if fmt.inspect(path).num_samples < self.num_samples:
                raise DataError(f"{path} holds fewer samples")

        def read_last() -> None:
            with closing(fmt.open(path)) as reader:
                read(fmt, reader, [self.num_samples - 1])

        for attempt in (look, read_last):
            line = refusal(attempt, closed=path)
            assert str(path) in line, f"{line!r} does not name the file"

    def _alone(self, config: DatasetConfig, folder: Path) -> Path:
        """The path of a file that is not there; its companions are, and are sound."""
        fmt = self.make(config)
        path = folder / f"alone{fmt.suffix}"
        if fmt.companions():
            written = self.written(fmt, folder)
            for suffix in fmt.companions():
                written.with_name(written.name + suffix).replace(path.with_name(path.name + suffix))
        return path

    def _bytes(self, fmt: Format, folder: Path, threads: int = 2) -> dict[str, bytes]:
        """What ``write`` leaves in a folder of its own: content by name."""
        folder.mkdir()
        write(fmt, folder / f"written{fmt.suffix}", 0, self.num_samples, threads)
        return {path.name: path.read_bytes() for path in folder.iterdir()}

    def _refuses(self, config: DatasetConfig, path: Path, words: str = "") -> None:
        fmt = self.make(config)

        def use() -> None:
            with closing(fmt.open(path)) as reader:
                read(fmt, reader, [0])

        # Opening alone refuses most, but a format may open a file only for each use.
        for attempt in (lambda: fmt.inspect(path), use):
            line = refusal(attempt, closed=path)
            assert str(path) in line, f"{line!r} does not name the file"
            assert words in line, f"{line!r} does not say {words!r}"


# --- helpers, of use in a format's own tests as well -------------------------------------------------


def write(fmt: Format, path: Path, first_sample: int, num_samples: int, threads: int = 2) -> Path:
    """Write a file with a pool of ``threads`` threads; returns its path."""
    with ThreadPoolExecutor(threads) as pool:
        fmt.write(path, first_sample, num_samples, pool)
    return path


def read(fmt: Format, reader: Reader, rows: Iterable[int], indices: Sequence[int] | None = None) -> Batch:
    """The batch of these samples of a file, one call each; ``indices``: what the batch calls them."""
    rows = list(rows)
    buffer = BatchBuffer(fmt.specs(), rows if indices is None else indices)
    for at, row in enumerate(rows):
        reader.read(row, 1, buffer, at)
    return buffer.finish()


def check_batch(fmt: Format, batch: Batch, samples: Iterable[int]) -> None:
    """Assert that the batch holds these generated samples, in this order."""
    samples = list(samples)
    found = [sample for _, sample in samples_of(batch, fmt.specs())]
    assert len(found) == len(samples), f"the batch holds {len(found)} samples, expected {len(samples)}"
    for number, sample in zip(samples, found, strict=True):
        difference = fmt.differences(number, sample)
        assert difference is None, f"sample {number}: {difference}"


def assert_equal(one: Batch, other: Batch) -> None:
    """Assert that two batches hold the same tensors."""
    assert list(one) == list(other), f"{list(one)} and {list(other)}"
    for name, tensor in one.items():
        assert tensor.dtype == other[name].dtype, f"{name}: {tensor.dtype} and {other[name].dtype}"
        assert torch.equal(tensor, other[name]), f"{name} differs"


def refusal(attempt: Callable[[], object], closed: Path | None = None) -> str:
    """The line of the DataError that ``attempt()`` raises; fails if it raises none, or more than a line.

    Args:
        attempt: what must fail.
        closed: a file that must not be open any more, even while the error is held.
    """
    try:
        attempt()
    except DataError as error:
        line = str(error)
        assert "\n" not in line, f"the message has several lines: {line!r}"
        assert closed is None or not is_open(closed), f"{closed} was left open"
        return line
    raise AssertionError("no DataError was raised")


def is_open(path: Path) -> bool:
    """Whether this process has ``path`` open (Linux: by ``/proc``; elsewhere never)."""
    folder = Path("/proc/self/fd")
    if not folder.is_dir():
        return False
    links = []
    for entry in folder.iterdir():
        try:
            links.append(os.readlink(entry))
        except OSError:  # the descriptor of this very listing
            continue
    return str(path.resolve()) in links
