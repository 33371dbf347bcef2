"""Measures the generation of data: bytes per second of each format, of fio, and of plain writes of equal files.

Every way writes the same number of files of about the same size into a fresh folder on the same file system, on as
many threads, and flushes each file to the device (or, in rows without a flush, none).  The plain writes are open,
write in pieces of 1 MiB from memory that is there, fsync, close, in two threads: what any generator costs at the
least.  fio does the same where it is installed.  Compressed files are counted by the bytes that are compressed: there
the limit is the library's deflate in a loop of two threads.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import tempfile
import threading
import zlib
from argparse import ArgumentParser, Namespace
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.harness.command import alone
from benchmarks.harness.rounds import Figures, Rounds, Unavailable, interleave, rounds_of, say, timed
from benchmarks.harness.tables import Missing, Part, Row, Table
from dlio_torch.config.schema import Config, DatasetConfig, FieldConfig, GenerateConfig
from dlio_torch.data.dataset.generation import generate
from dlio_torch.dist.base import SingleCommunicator
from dlio_torch.errors import DlioError
from dlio_torch.formats.core import payload, registry
from dlio_torch.formats.hdf5.options import Hdf5Config
from dlio_torch.formats.numpy.options import NpzConfig
from dlio_torch.iotrace.recorder.spans import NULL
from dlio_torch.storage.local.raw_readers import fio_version

NAME = "generation"
PLAIN = "plain writes"
FIO = "fio"
THREADS = 2
PIECE = 1 << 20
LEVEL = 4
_GZIP = Hdf5Config(chunk_bytes=1 << 16, compression="gzip", compression_level=LEVEL, compressibility=0.5)
_PIXELS = [224, 224, 3]

FORMATS: dict[str, dict[str, Any]] = {
    "npz": {"format": "npz"},
    "npy": {"format": "npy"},
    "hdf5": {"format": "hdf5"},
    "hdf5, chunks": {"format": "hdf5", "hdf5": Hdf5Config(chunk_bytes=1 << 16)},
    "hdf5, gzip": {"format": "hdf5", "hdf5": _GZIP},
    "npz, deflated": {"format": "npz", "npz": NpzConfig(compressed=True, compressibility=0.5)},
    "indexed_binary": {"format": "indexed_binary"},
    "tfrecord": {"format": "tfrecord"},
    "csv": {"format": "csv"},
    "jpeg": {"format": "jpeg"},
}
COMPRESSED = ("hdf5, gzip", "npz, deflated", "jpeg")


@dataclass(frozen=True)
class Amount:
    """Amount of data to write: files, samples per file, bytes per sample."""

    files: int
    samples: int
    size: int

    @property
    def bytes(self) -> int:
        """Bytes of all samples."""
        return self.files * self.samples * self.size


AMOUNTS = {"150 kB, 64 a file": Amount(16, 64, 150_000), "150 kB, 1 a file": Amount(300, 1, 150_000),
           "2 KiB, 10000 a file": Amount(4, 10_000, 2048), "32 MiB, 1 a file": Amount(4, 1, 32 << 20)}  # fmt: skip


def add_arguments(parser: ArgumentParser) -> None:
    parser.add_argument("--formats", default="", help=f"of {'; '.join(FORMATS)}, separated by semicolons; default: all")
    parser.add_argument("--flush", choices=("yes", "no", "both"), default="both", help="fsync each file")


def run(arguments: Namespace) -> Iterator[Part]:
    names = [name.strip() for name in arguments.formats.split(";")] if arguments.formats else list(FORMATS)
    amounts = dict(list(AMOUNTS.items())[: 1 if arguments.quick else None])
    for what, amount in amounts.items():
        for fsync in {"yes": [True], "no": [False], "both": [True, False]}[arguments.flush]:
            if arguments.quick:
                amount = Amount(2, min(4, amount.samples), amount.size)  # noqa: PLW2901
            say(f"{what}, {'flushed' if fsync else 'not flushed'}")
            with tempfile.TemporaryDirectory(dir=arguments.directory) as folder:
                yield from _part(what, amount, Path(folder), names, rounds_of(arguments, 5), fsync=fsync)


def _part(what: str, amount: Amount, folder: Path, names: list[str], rounds: int, *, fsync: bool) -> Iterator[Part]:
    ways: dict[str, Callable[[], Figures]] = {PLAIN: partial(_fresh, folder, partial(_plain, amount, fsync))}
    if fio_version() is not None:
        ways[FIO] = partial(_fresh, folder, partial(_fio, amount, fsync))
    if set(names) & set(COMPRESSED[:2]) and fsync:
        ways["deflate"] = partial(_fresh, folder, _deflate)
    for name in names:
        if name == "jpeg" and amount.samples > 1:
            continue  # one image a file
        if name in COMPRESSED and not fsync:
            continue  # limited by the compression
        try:
            ways[name] = partial(_fresh, folder, _ours(name, amount, fsync))
        except DlioError as error:
            yield Missing(name, str(error), what)
    found = interleave(ways, rounds)
    yield from (Missing(name, why, what) for name, why in found.dropped.items())
    yield Table(NAME, list(_rows(found, what, fsync=fsync)), f"The rate of fio is {fio_version() or 'not measured'}'s.")


Written = tuple[int, float | None]
"""Bytes, and the seconds that a program of its own says it took; None: those of the call count."""


def _fresh(folder: Path, write: Callable[[Path], Written]) -> Figures:
    """Writes into a new folder; creating and removing the folder is not timed."""
    target = folder / "data"
    target.mkdir()
    found: list[Written] = []
    try:
        used = timed(lambda: found.append(write(target)))
    finally:
        shutil.rmtree(target)
    ((size, seconds),) = found
    return {"bytes_per_s": size / (seconds or used["s"]), "cpu_s_per_byte": used["cpu_s"] / size}


def _ours(name: str, amount: Amount, fsync: bool) -> Callable[[Path], Written]:
    """Generates data as the verb ``generate`` does."""
    options, share = FORMATS[name], 1.0
    field = FieldConfig(dtype="uint8", shape=[amount.size])
    if name == "csv":
        field = FieldConfig(dtype="float32", shape=[amount.size // 8])
        share = 8 * (amount.size // 8) / amount.size
    elif name == "jpeg":
        field = FieldConfig(dtype="uint8", shape=_PIXELS)
        share = np.prod(_PIXELS) / amount.size

    def write(folder: Path) -> Written:
        dataset = DatasetConfig(
            root=str(folder), num_files=amount.files, samples_per_file=amount.samples, fields=[field], **options
        )
        config = Config(recipe=NAME, dataset=dataset, generate=GenerateConfig(fsync=fsync))
        made = generate(config, registry.create(dataset, config.seed), SingleCommunicator(), NULL)
        return int(amount.bytes * share) if name in COMPRESSED else made.bytes, None

    # Says now what is missing.
    registry.create(DatasetConfig(samples_per_file=amount.samples, fields=[field], **options), 1)
    return write


def _plain(amount: Amount, fsync: bool, folder: Path) -> Written:
    memory = np.random.default_rng(1).bytes(PIECE)
    size = amount.samples * amount.size

    def write(thread: int) -> None:
        for number in range(thread, amount.files, THREADS):
            descriptor = os.open(folder / f"{number:07}", os.O_WRONLY | os.O_CREAT)
            left = size
            while left:
                left -= os.write(descriptor, memory[:left] if left < PIECE else memory)
            if fsync:
                os.fsync(descriptor)
            os.close(descriptor)

    crew = [threading.Thread(target=write, args=(number,)) for number in range(THREADS)]
    for thread in crew:
        thread.start()
    for thread in crew:
        thread.join()
    return amount.bytes, None


def _fio(amount: Amount, fsync: bool, folder: Path) -> Written:
    size = amount.samples * amount.size
    block = size if size < PIECE else PIECE
    command = [
        "fio", "--name=write", f"--directory={folder}", "--ioengine=psync", "--thread", "--rw=write", f"--bs={block}",
        f"--numjobs={THREADS}", f"--nrfiles={amount.files // THREADS}", f"--filesize={size // block * block}",
        "--file_service_type=sequential", "--create_on_open=1", "--fallocate=none", "--openfiles=1",
        f"--fsync={size // block if fsync else 0}", "--group_reporting", "--output-format=json",
    ]  # fmt: skip
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise Unavailable(f"fio failed: {(done.stderr or done.stdout).strip().splitlines()[0]}")
    jobs = [job["write"] for job in json.loads(done.stdout[done.stdout.index("{") :])["jobs"]]
    return sum(job["io_bytes"] for job in jobs), max(job["runtime"] for job in jobs) / 1000 or None


def _deflate(folder: Path) -> Written:
    """Deflates content like that of the compressed formats, from memory."""
    memory = np.empty(4 << 20, np.uint8)
    payload.fill(memory, 1, 0, 0, np.array([memory.size]), 0.5)
    chunks = [memory[low : low + (1 << 16)].data for low in range(0, memory.size, 1 << 16)]
    with ThreadPoolExecutor(THREADS) as pool:
        list(pool.map(lambda chunk: zlib.compress(chunk, LEVEL), chunks))
    return memory.size, None


def _rows(found: Rounds, what: str, *, fsync: bool) -> Iterator[Row]:
    for name in found.figures:
        yield {
            "samples": what,
            "flushed": "yes" if fsync else "no",
            "way": name,
            "MB/s": found.spread(name, "bytes_per_s").scaled(1e-6),
            f"of {PLAIN}": found.ratio(name, "bytes_per_s", PLAIN),
            f"of {FIO}": found.ratio(name, "bytes_per_s", FIO) if FIO in found.figures else None,
            "processor time (s/GB)": found.spread(name, "cpu_s_per_byte").median * 1e9,
        }


if __name__ == "__main__":
    alone(NAME)
