"""Contract tests with damaged files: a reader must not return wrong content without an error."""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

from dlio_torch.config.schema import DatasetConfig
from dlio_torch.errors import DataError
from dlio_torch.formats.core.batch import Sample, samples_of
from dlio_torch.formats.core.byte_origin import locate_byte
from dlio_torch.formats.core.format import Format
from dlio_torch.formats.testing.helpers import read, write
from dlio_torch.formats.testing.reading import ReadingContract

_BYTE, _PART = re.compile(r"byte (\d+) of (.+)"), re.compile(r"in the \w+ of (\d+) bytes at byte (\d+) of (.+)")
_PARAMETERS: dict[tuple[str, int], dict[str, float]] = {}


class DamageContract(ReadingContract):
    """The tests that each format with files passes when bytes are lost or changed."""

    def test_a_flipped_bit(self, config: DatasetConfig, tmp_path: Path) -> None:
        fmt = self._make_tuned(config)
        sound, sizes = self._sound(fmt, tmp_path)
        largest = max(sizes, key=sizes.__getitem__)  # the samples, and few tables
        outcomes: list[str | list[int]] = []
        for part in (*range(16, 56, 8), *range(1, 64, 2)):
            if len(outcomes) >= 5 and any(outcomes):
                break  # more are looked at only where all others met bytes that nobody reads
            path, file = self._copy(fmt, tmp_path, largest)
            _flip(file, sizes[largest] * part // 64)
            outcomes.append(self._outcome(fmt, path, sound))
        # Of a format with a layout, another check flips a byte of a sample.
        assert any(outcomes) or fmt.has_layout, f"no flipped bit of {largest} was detected"

    def test_a_file_that_is_cut_anywhere(self, config: DatasetConfig, tmp_path: Path) -> None:
        fmt = self._make_tuned(config)
        sound, sizes = self._sound(fmt, tmp_path)
        for name, size in sizes.items():
            for cut in sorted({min(8, size // 2), size // 3, size * 3 // 4, size - 1}):
                path, file = self._copy(fmt, tmp_path, name)
                os.truncate(file, cut)
                outcome = self._outcome(fmt, path, sound)
                if not isinstance(outcome, str) and self.knows_its_length(config):
                    assert not outcome, f"{name} truncated at byte {cut} of {size} gave wrong samples without an error"
                    assert cut > size // 2, f"{name} truncated at byte {cut} of {size} was read without an error"

    def knows_its_length(self, config: DatasetConfig) -> bool:
        """Whether a file states its length; otherwise only ``verify`` detects truncation."""
        return True

    def test_the_location_of_a_byte_is_that_byte(self, config: DatasetConfig, tmp_path: Path) -> None:
        fmt, row = self._make_tuned(config), self.num_samples - 1
        if not fmt.has_layout:
            return
        sound, _ = self._sound(fmt, tmp_path)
        for spec in fmt.specs():
            last = sound[row][spec.name].nbytes - 1
            path, _ = self._copy(fmt, tmp_path, f"a{fmt.suffix}")
            location = locate_byte(fmt, path, row, spec.name, last)
            if location is None:
                continue  # it is read as a whole
            byte, part = _BYTE.fullmatch(location), _PART.fullmatch(location)
            if byte is not None:
                _flip(self._named(path, byte[2]), int(byte[1]))
            else:
                assert part is not None, f"the location of a byte is {location!r}"
                _flip(self._named(path, part[3]), int(part[2]), int(part[1]))
            outcome = self._outcome(fmt, path, sound)
            if isinstance(outcome, str):
                continue  # a checksum has found it
            assert outcome == [row] or part, f"the byte at {location} does not belong to sample {row}, but to {outcome}"
            assert row in outcome, f"the byte at {location} belongs to no part of sample {row}"
            if byte is not None:
                now = dict(self._samples(fmt, path))[row][spec.name].tobytes()
                assert now[:-1] == sound[row][spec.name].tobytes()[:-1], (
                    f"the byte at {location} is not the expected byte of {spec.name}"
                )

    # --- what the checks are made of ---

    def _make_tuned(self, config: DatasetConfig) -> Format:
        """Same as :meth:`make`, but caches parameters that some formats determine by trials."""
        fmt, key = self.make(config), (repr(config), self.num_samples)
        fmt.use_parameters(_PARAMETERS.setdefault(key, {}) or fmt.parameters())
        _PARAMETERS[key] = fmt.parameters()
        return fmt

    def _sound(self, fmt: Format, folder: Path) -> tuple[dict[int, Sample], dict[str, int]]:
        """Writes an intact file with its companions; returns samples and the bytes of each non-empty file."""
        sound = folder / "sound"
        sound.mkdir()
        path = write(fmt, sound / f"a{fmt.suffix}", 0, self.num_samples)
        files = {str(file.relative_to(sound)): file.stat().st_size for file in sound.rglob("*") if file.is_file()}
        return dict(self._samples(fmt, path)), {name: size for name, size in files.items() if size}

    def _copy(self, fmt: Format, folder: Path, name: str) -> tuple[Path, Path]:
        """Copies the intact file to a new path, since libraries may cache files by path; returns its file ``name``."""
        number = sum(1 for _ in folder.iterdir())
        shutil.copytree(folder / "sound", folder / str(number))
        return folder / str(number) / f"a{fmt.suffix}", folder / str(number) / name

    def _named(self, path: Path, name: str) -> Path:
        """Path of the file of that name next to a copy or inside it."""
        return next(file for file in path.parent.rglob(name) if file.is_file())

    def _samples(self, fmt: Format, path: Path) -> Iterator[tuple[int, Sample]]:
        with closing(fmt.open(path)) as reader:
            if reader.num_samples not in (None, self.num_samples):
                raise DataError(f"{path} holds an unexpected number of {reader.num_samples} samples")
            batch = read(fmt, reader, range(self.num_samples))
        return samples_of(batch, fmt.specs())

    def _outcome(self, fmt: Format, path: Path, sound: dict[int, Sample]) -> str | list[int]:
        """The error message for a damaged file, or the numbers of the samples with wrong content if it is readable."""
        try:
            samples = dict(self._samples(fmt, path))
        except DataError as error:
            line = str(error)
            assert "\n" not in line, f"the error message has several lines: {line!r}"
            assert str(path.with_suffix("")) in line, f"the error message {line!r} does not name the file"
            return line
        return [row for row, sample in samples.items() if _bytes(sample) != _bytes(sound[row])]


def _bytes(sample: Sample) -> list[bytes]:
    return [array.tobytes() for array in sample.values()]


def _flip(file: Path, offset: int, count: int = 1) -> None:
    """Flips one bit in each of ``count`` bytes."""
    with file.open("r+b") as opened:
        opened.seek(offset)
        there = opened.read(count)
        opened.seek(offset)
        opened.write(bytes(byte ^ 16 for byte in there))
