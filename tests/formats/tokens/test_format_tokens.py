"""The format tokens: files as nanoGPT's and llm.c's, windows as their readers take them."""

from __future__ import annotations

import struct
from contextlib import closing
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dlio_torch.config.schema import DatasetConfig
from dlio_torch.errors import ConfigError
from dlio_torch.formats.core.batch import BatchBuffer
from dlio_torch.formats.core.registry import create
from dlio_torch.formats.testing.contract import SEED, FormatContract, check_batch, read, refusal, write
from dlio_torch.formats.tokens.options import TokensConfig
from dlio_torch.formats.tokens.windows import Windows

LONG = 17000  # more tokens than the contract's file of another format has bytes: bare tokens have no other mark


def config(**options: Any) -> DatasetConfig:
    return DatasetConfig(format="tokens", tokens=TokensConfig(**options))


class TestContract(FormatContract):
    configs: ClassVar = {
        "mapped": config(window=LONG),
        "mapped_once": config(window=LONG, reopen="none", targets=False),
        "read": config(window=LONG, memory_map=False),
        "every_token": config(window=LONG, stride=1),
        "read_every_token": config(window=LONG, stride=1, memory_map=False, targets=False),
        "bytes": config(window=LONG, dtype="uint8", vocabulary=256, targets=False),
        "wide": config(window=LONG, dtype="uint32", vocabulary=128256),
        "header": config(window=100, header="llm.c"),
        "header_read": config(window=70, stride=33, header="llm.c", dtype="uint32", memory_map=False, targets=False),
    }


def loaded(path: Path, rows: list[int], **options: Any) -> dict[str, np.ndarray[Any, Any]]:
    """The arrays of samples of an existing file."""
    fmt = create(DatasetConfig(format="tokens", path=str(path), tokens=TokensConfig(**options)), SEED)
    with closing(fmt.open(path)) as reader:
        batch = read(fmt, reader, rows)
    return {name: tensor.numpy() for name, tensor in batch.items()}


@pytest.mark.parametrize("memory_map", [True, False])
@pytest.mark.parametrize("stride", [0, 1, 3])
def test_a_sample_is_nanogpt_s(tmp_path: Path, memory_map: bool, stride: int) -> None:
    tokens = np.random.default_rng(1).integers(0, 50257, 1000).astype(np.uint16)
    tokens.tofile(tmp_path / "train.bin")
    rows = [5, 0, 61] if not stride else [5, 0, 327]
    batch = loaded(tmp_path / "train.bin", rows, window=16, stride=stride, memory_map=memory_map)
    for place, row in enumerate(rows):
        i = row * (stride or 16)
        assert np.array_equal(batch["x"][place], tokens[i : i + 16].astype(np.int64))
        assert np.array_equal(batch["y"][place], tokens[i + 1 : i + 1 + 16].astype(np.int64))
    assert batch["x"].dtype == batch["y"].dtype == np.int64


@settings(deadline=None)
@given(
    tokens=st.integers(1, 500), window=st.integers(1, 60), stride=st.integers(0, 70), targets=st.booleans()
)  # fmt: skip
def test_samples_are_counted_as_they_fit(tokens: int, window: int, stride: int, targets: bool) -> None:
    windows = Windows.of(TokensConfig(window=window, stride=stride, targets=targets))
    starts = [start for start in range(0, tokens, stride or window) if start + window + targets <= tokens]
    assert windows.count(tokens) == len(starts)
    if starts:
        assert windows.count(windows.tokens(len(starts))) == len(starts)
        assert windows.tokens(len(starts)) <= tokens


def test_random_starts_are_those_of_get_batch() -> None:
    """As nanoGPT, which draws below len(data) - block_size; llm.c has (tokens - 1) // window."""
    assert Windows.of(TokensConfig(stride=1)).count(9_035_582_198) == 9_035_582_198 - 1024
    assert Windows.of(TokensConfig()).count(4_434_897) == 4_434_896 // 1024


@pytest.mark.parametrize("stride", [0, 1, 2000])
def test_the_bytes_that_a_sample_is_read_by(stride: int) -> None:
    """Windows that overlap share their bytes, and those with gaps between them read less than is stored."""
    fmt = create(DatasetConfig(format="tokens", samples_per_file=10**6, tokens=TokensConfig(stride=stride)), SEED)
    assert fmt.stored_bytes() * fmt.sharing() == pytest.approx(2 * 1025)


def test_generated_tokens_are_uniform_below_the_vocabulary(tmp_path: Path) -> None:
    fmt = create(config(window=50_000, vocabulary=1000), SEED)
    write(fmt, tmp_path / "a.bin", 0, 10)
    tokens = np.fromfile(tmp_path / "a.bin", np.uint16)
    assert len(tokens) == 500_001
    counts = np.bincount(tokens, minlength=1000)
    assert len(counts) == 1000
    assert counts.min() > 380
    assert counts.max() < 620


def test_the_header_is_that_of_llm_c(tmp_path: Path) -> None:
    for dtype, magic, version in [("uint16", 20240520, 1), ("uint32", 20240801, 7)]:
        fmt = create(config(window=10, header="llm.c", dtype=dtype), SEED)
        content = write(fmt, tmp_path / "a.bin", 0, 3).read_bytes()
        assert np.frombuffer(content[:1024], "<i4").tolist() == [magic, version, 31] + [0] * 253
        assert len(content) == 1024 + 31 * np.dtype(dtype).itemsize


def test_one_sequence_over_all_files(tmp_path: Path) -> None:
    """The files of a data set continue each other, whatever the stride."""
    fmt = create(config(window=10, stride=4), SEED)
    first, second = (np.fromfile(write(fmt, tmp_path / f"{n}.bin", n * 5, 5), np.uint16) for n in (0, 1))
    whole = np.fromfile(write(fmt, tmp_path / "whole.bin", 0, 10), np.uint16)
    assert np.array_equal(whole, np.concatenate([first[: 5 * 4], second]))


def test_a_batch_at_a_time_is_mapped(tmp_path: Path) -> None:
    """The mapping goes with the memory of its batch, as nanoGPT gives its own back."""
    path = tmp_path / "train.bin"
    np.arange(1000, dtype=np.uint16).tofile(path)

    def is_mapped() -> bool:
        return str(path) in Path("/proc/self/maps").read_text()

    for reopen, stays in [("batch", False), ("none", True)]:
        fmt = create(DatasetConfig(format="tokens", path=str(path), tokens=TokensConfig(window=9, reopen=reopen)), SEED)
        with closing(fmt.open(path)) as reader:
            assert is_mapped() == stays
            buffer = BatchBuffer(fmt.specs(), [0, 1])
            reader.read(0, 1, buffer, 0)
            assert is_mapped()
            reader.read(1, 1, buffer, 1)
            buffer.finish()
            del buffer
            assert is_mapped() == stays
        assert not is_mapped()


def test_a_stream_is_mapped_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fmt = create(config(window=10), SEED)
    path = write(fmt, tmp_path / "a.bin", 0, 7)
    mapped, memmap = [], np.memmap
    monkeypatch.setattr(np, "memmap", lambda *args: mapped.append(args) or memmap(*args))
    with closing(fmt.open(path)) as reader:
        for number, sample in enumerate(fmt.stream(reader)):
            assert fmt.differences(number, sample) is None
    assert number == 6
    assert len(mapped) == 1


def test_damage_is_named(tmp_path: Path) -> None:
    path = tmp_path / "a.bin"
    header = struct.pack("<3i", 20240520, 1, 50).ljust(1024, b"\0")
    for content, options, words in [
        (b"\1" * 99, {"window": 10}, ["99 bytes", "uint16", "dataset.tokens.dtype"]),
        (b"\1" * 18, {"window": 10}, ["9 tokens", "11 that a sample needs", "dataset.tokens.window"]),
        (header + bytes(99), {"window": 10, "header": "llm.c"}, ["50 tokens", "1124 bytes", "1123 bytes"]),
        (header[:500], {"window": 10, "header": "llm.c"}, ["within its header"]),
        (header + bytes(100), {"window": 10, "header": "llm.c", "dtype": "uint32"}, ["uint16", "uint32"]),
        (bytes(1024), {"window": 10, "header": "llm.c"}, ["20240520", "dataset.tokens.header=none"]),
    ]:
        path.write_bytes(content)
        line = refusal(lambda: loaded(path, [0], **options))  # noqa: B023
        assert all(word in line for word in [str(path), *words]), line


@pytest.mark.parametrize("memory_map", [True, False])
def test_a_file_that_shrinks_is_named(tmp_path: Path, memory_map: bool) -> None:
    fmt = create(config(window=10, memory_map=memory_map), SEED)
    path = write(fmt, tmp_path / "a.bin", 0, 7)
    with closing(fmt.open(path)) as reader:
        check_batch(fmt, read(fmt, reader, [6]), [6])
        path.write_bytes(path.read_bytes()[:60])
        line = refusal(lambda: read(fmt, reader, [6]))
        assert str(path) in line
        assert "replaced or truncated" in line


def test_options_that_no_file_can_have() -> None:
    with pytest.raises(ConfigError, match=r"vocabulary=70000 .* 65535"):
        create(config(vocabulary=70000), SEED)
    big = DatasetConfig(format="tokens", samples_per_file=1 << 22, tokens=TokensConfig(header="llm.c"))
    with pytest.raises(ConfigError, match="2147483647"):
        create(big, SEED)
