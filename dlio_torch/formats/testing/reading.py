"""Contract tests of samples and of reading, for formats with and without files."""

from __future__ import annotations

import json
import pickle
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any, ClassVar

from dlio_torch.config.schema import DatasetConfig
from dlio_torch.formats.core.batch import INDEX, LENGTHS, BatchBuffer
from dlio_torch.formats.core.format import Format
from dlio_torch.formats.core.registry import create
from dlio_torch.formats.testing.helpers import assert_equal, check_batch, read

SEED = 20
FIRST = 1 << 40  # evaluation samples are numbered from here on


class ReadingContract:
    """The tests that each format passes, with files or without.

    Attributes:
        configs: configurations to run every check with, by a short name.
        num_samples: samples of the files that are written; 1 for formats whose files hold no more.
    """

    configs: ClassVar[Mapping[str, DatasetConfig]] = {}
    num_samples: ClassVar[int] = 7

    def pytest_generate_tests(self, metafunc: Any) -> None:
        """Pytest hook that runs each check with each configuration."""
        assert self.configs, f"{type(self).__name__} defines no configs"
        metafunc.parametrize("config", list(self.configs.values()), ids=list(self.configs))

    # --- what the checks are made of ---

    def make(self, config: DatasetConfig, seed: int = SEED) -> Format:
        """The format of ``config``, for files of ``num_samples`` samples."""
        return create(replace(config, samples_per_file=self.num_samples), seed)

    def written(self, fmt: Format, folder: Path) -> Path:
        """Writes a file with the samples from 0 on; does nothing for formats without files."""
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
        first, second, other = self.make(config), self.make(config), self.make(config, SEED + 1)
        for sample in [3, 0, FIRST]:
            assert first.differences(sample, second.expected(sample)) is None, f"sample {sample} differs from itself"
        assert first.differences(0, other.expected(0)) is not None, "another seed gives the same sample"
        assert first.specs() == other.specs()

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
