"""Format ``webdataset``: tar shards of samples, written by ``TarWriter`` and read as ``WebDataset`` reads them.

A sample is a run of members with the same key, the name up to its first dot; the extension of a member is the name of
its field.  Shards are read from start to end (``access.pattern=stream``) or, by an index of their headers, at single
members (as by ``wids`` of WebDataset 0.2, which maps the shard or seeks in it; here each member is one ``pread``).

Compressed images change with the version of the library that makes them: a sample is what decoding its file gives.
"""

from __future__ import annotations

import gzip
import io
from collections.abc import Iterator
from concurrent.futures import Executor
from functools import cached_property
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt

from dlio_torch.config.schema import DatasetConfig
from dlio_torch.errors import ConfigError
from dlio_torch.formats.core.array_format import FieldFormat
from dlio_torch.formats.core.batch import ArraySpec, Sample
from dlio_torch.formats.core.format import FileInfo
from dlio_torch.formats.core.layout import FileLayout
from dlio_torch.formats.core.libraries import import_library
from dlio_torch.formats.core.ordered_map import in_order
from dlio_torch.formats.core.reader import Reader
from dlio_torch.formats.webdataset.layout import shard_layout
from dlio_torch.formats.webdataset.member_codec import CLASSES, array_of, as_text, decoder, encoded, pixels, webdataset
from dlio_torch.formats.webdataset.members import SampleMember, members_of
from dlio_torch.formats.webdataset.options import WebdatasetConfig
from dlio_torch.formats.webdataset.reader import ShardReader, StoredSample
from dlio_torch.formats.webdataset.samples import Selection, count_samples
from dlio_torch.formats.webdataset.tar_headers import BLOCK, RECORD, is_plain, tar_errors
from dlio_torch.iotrace.recorder.spans import NULL, Recorder

_TEXTS = ("txt", "text", "transcript", "json", "jsn")
_BLOCK_BYTES = 1 << 20  # content that one thread generates at a time
_AHEAD_BYTES = 64 << 20  # content in memory while a shard is written
_TRIALS = 4
_LEVEL = 6  # of gzip
_TIME = (
    1577836800.25  # 2020; a time with a fraction as TarWriter's own, which tarfile keeps in a header before each member
)


class WebdatasetFormat(FieldFormat):
    """Arrays of ``dataset.fields`` as members of samples in tar shards."""

    name: ClassVar[str] = "webdataset"
    suffix: ClassVar[str] = ".tar"
    writes_at_once: ClassVar[bool] = True
    has_layout: ClassVar[bool] = True

    def __init__(self, config: DatasetConfig, seed: int) -> None:
        self.options: WebdatasetConfig = config.of(WebdatasetConfig)
        super().__init__(config, seed)
        webdataset()  # a missing package is told before anything is written
        self._members = members_of(config, self._specs)
        if any(member.decoded and member.kind == "image" for member in self._members):
            decoder(self.options.decode)
        if config.path is None:
            self._check_images()

    def specs(self) -> list[ArraySpec]:
        return [member.spec for member in self._members]

    def layout_options(self) -> dict[str, Any]:
        options = super().layout_options()
        for name in ("decode", "missing", "buffer_bytes"):  # belong to reading
            del options[name]
        if any(member.kind == "image" for member in self._members):
            options["library"] = _image_library()
        return options

    def _check_images(self) -> None:
        """Raise unless Pillow can encode the images that are to be generated."""
        for member in self._members:
            if member.kind == "image":
                _image_library()
                try:
                    encoded(member, np.zeros((1, 1, *member.field.shape[2:]), np.uint8), self.options.quality)
                except (KeyError, OSError, ValueError) as error:
                    shape = list(member.field.shape)
                    raise ConfigError(
                        f"dataset.fields: Pillow cannot write {shape} as {member.field.name} ({error})",
                        hint="use jpg, png or webp, or another number of channels",
                    ) from error

    # --- content ---

    def content(self, number: int, first: int, count: int) -> list[npt.NDArray[np.generic]]:
        member = self._members[number]
        if member.kind == "image":
            self._check_generated(member)
            samples, noise = range(first, first + count), self.options.noise
            return [pixels(self.seed, sample, number, member.field.shape, noise) for sample in samples]
        arrays = super().content(number, first, count)
        if member.kind == "integer":
            return [np.asarray(array.astype(np.uint64) % np.uint64(CLASSES), member.field.dtype) for array in arrays]
        extension = member.keys[0].rpartition(".")[2]
        if extension in _TEXTS and member.field.dtype == np.uint8:
            return [as_text(extension, array.reshape(-1)).reshape(array.shape) for array in arrays]  # type: ignore[arg-type]
        return arrays

    def _check_generated(self, member: SampleMember) -> None:
        """Raise unless the size of a generated image is known."""
        if member.field.variable:
            raise ConfigError(
                f"dataset.fields: {member.field.name}: an image that is generated has one size",
                hint=f"set {{name: {member.field.name}, dtype: uint8, shape: [HEIGHT, WIDTH, 3]}}",
            )

    def expected(self, sample: int) -> Sample:
        content: Sample = {}
        for number, member in enumerate(self._members):
            array = self.content(number, sample, 1)[0]
            if member.kind != "stored" and (member.kind == "image" or not member.decoded):
                stored = encoded(member, array, self.options.quality)
                array = array_of(member, member.keys[0], stored, self.options.decode, f"sample {sample}")
            content[member.spec.name] = array
        return content

    def _stored(self, first: int, count: int) -> list[list[bytes]]:
        """Content of the members of consecutive samples."""
        columns = [
            [encoded(member, array, self.options.quality) for array in self.content(number, first, count)]
            for number, member in enumerate(self._members)
        ]
        return [list(row) for row in zip(*columns, strict=True)]

    # --- sizes ---

    def sample_bytes(self) -> float:
        return self._mean_bytes

    @cached_property
    def _mean_bytes(self) -> float:
        """Bytes of the arrays of a sample in the mean, for which samples may have to be generated and encoded."""
        trial: list[list[bytes]] = []
        total = 0.0
        for number, member in enumerate(self._members):
            if member.decoded and not member.spec.variable:
                total += member.row_bytes
            elif member.spec is member.field or member.field.variable:
                total += self.field_bytes(number)
            else:  # stored bytes of what the field describes
                trial = trial or self._stored(0, _TRIALS)
                total += sum(len(row[number]) for row in trial) / len(trial)
        return total

    def stored_bytes(self) -> float:
        if self.config.path is not None:  # existing members need not be like those that would be generated
            return self.sample_bytes() + 2 * BLOCK * len(self._members)
        samples = self.config.samples_per_file
        count = min(_TRIALS, samples)
        file = io.BytesIO()
        self._write_samples(file, range(count), self._stored(0, count))
        archive = file.getvalue()
        size = -(-(_without_end(archive) / count * samples + 2 * BLOCK) // RECORD) * RECORD
        if self.options.compression == "gzip":
            size *= len(gzip.compress(archive, _LEVEL)) / len(archive)
        return float(size / samples)

    # --- writing ---

    def write(self, path: Path, first_sample: int, num_samples: int, pool: Executor) -> None:
        step = max(1, int(_BLOCK_BYTES // max(1.0, self.sample_bytes())))
        ahead = max(4, int(_AHEAD_BYTES // max(_BLOCK_BYTES, self.sample_bytes())))

        def block(low: int) -> list[list[bytes]]:
            return self._stored(first_sample + low, min(step, num_samples - low))

        blocks = in_order(pool, block, range(0, num_samples, step), ahead)
        rows = (row for rows in blocks for row in rows)
        with open(path, "wb", buffering=_BLOCK_BYTES) as file:
            samples = range(first_sample, first_sample + num_samples)
            if self.options.compression == "gzip":
                # Not TarWriter's own compression, which writes the time into the file.
                with gzip.GzipFile("", "wb", _LEVEL, file, mtime=0) as packed:
                    self._write_samples(packed, samples, rows)
            else:
                self._write_samples(file, samples, rows)

    def _write_samples(self, file: Any, samples: range, rows: Any) -> None:
        with webdataset().TarWriter(file, encoder=False, mtime=_TIME) as writer:
            for number, row in zip(samples, rows, strict=True):
                members = {member.keys[0]: content for member, content in zip(self._members, row, strict=True)}
                writer.write({"__key__": f"{number:09d}", **members})

    # --- reading ---

    def inspect(self, path: Path) -> FileInfo:
        with tar_errors(path):
            plain = is_plain(path)
        count = count_samples(path, Selection(self._members, skip=self.options.missing == "skip"), plain=plain)
        return FileInfo(count, {"compressed": not plain, "members": [member.spec.name for member in self._members]})

    def open(self, path: Path, recorder: Recorder = NULL) -> Reader:
        return ShardReader(path, self._members, self.options)

    def layout(self, path: Path) -> FileLayout:
        return shard_layout(path, self._members, self.options)

    def stream(self, reader: Reader) -> Iterator[Sample]:
        return map(self.decoded, self.stored(reader))

    def stored(self, reader: Reader) -> Iterator[StoredSample]:
        """Yields samples as ``WebDataset(...).shuffle(...).decode()`` shuffles them: members are decoded behind it."""
        assert isinstance(reader, ShardReader)
        return reader.stored()

    def decoded(self, stored: StoredSample) -> Sample:
        return stored.decoded()


def _without_end(archive: bytes) -> int:
    """Bytes of an archive without the zeros behind its last member."""
    return -(-len(archive.rstrip(b"\0")) // BLOCK) * BLOCK


def _image_library() -> str:
    """Version of Pillow, on which the bytes of encoded images depend.

    Raises:
        MissingPackageError: it is not installed.
    """
    import_library("PIL", "dataset.format=webdataset needs Pillow for images", "image")
    from PIL import features

    return f"Pillow {features.version('pil')}, jpg {features.version('jpg')}"
