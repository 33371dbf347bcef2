"""Address and undefined-behaviour sanitizers over the native decoders, with sound and damaged chunks."""

from __future__ import annotations

import os
import random
import subprocess
from pathlib import Path

import numpy as np
from chunk_cases import encoded
from native_programs import compiled

from dlio_torch.native.chunks import LIBRARIES, ChunkFilter

CHAINS = (
    [ChunkFilter.DEFLATE],
    [ChunkFilter.GZIP_FILE],
    [ChunkFilter.TURNED, ChunkFilter.SHUFFLE, ChunkFilter.DEFLATE, ChunkFilter.FLETCHER32],
    [ChunkFilter.FLETCHER32, ChunkFilter.DEFLATE],
    [ChunkFilter.SHUFFLE, ChunkFilter.FLETCHER32],
    [ChunkFilter.SHUFFLE],
    [],
)


def case(filters: list[ChunkFilter], itemsize: int, size: int, skipped: int, stored: bytes, content: bytes) -> bytes:
    numbers = [len(filters), itemsize, size, skipped, len(stored), bool(content), *filters]
    return np.array(numbers, np.int64).tobytes() + stored + content


def write_cases(path: Path) -> int:
    values, cases = random.Random(5), []
    for filters in CHAINS:
        for itemsize in (2, 4, 8):
            content = bytes(values.choices(range(9), k=itemsize * values.choice([1, 17, 50, 700])))
            for skipped in {0, values.randrange(2 ** len(filters))}:
                stored = encoded(content, filters, skipped, itemsize)
                cases.append(case(filters, itemsize, len(content), skipped, stored, content))
                for _ in range(8):
                    damaged = bytearray(stored)
                    for _ in range(values.randint(1, 3)):
                        damaged[values.randrange(len(damaged))] ^= 1 << values.randrange(8)
                    cut = bytes(damaged[: values.randrange(len(damaged) + 1)])
                    size = len(content) + values.choice([0, 0, -1, 1, 40])
                    cases += [case(filters, itemsize, size, skipped, part, b"") for part in (bytes(damaged), cut)]
    path.write_bytes(b"".join(cases))
    return len(cases)


def test_decoders_touch_only_their_memory(tmp_path: Path) -> None:
    driver = Path(__file__).parents[2] / "support" / "decode_driver.c"
    program = compiled(driver, tmp_path / "driver", "-fsanitize=address,undefined", "-fno-sanitize-recover=all")
    count = write_cases(tmp_path / "cases")
    # Libraries stay open to the end of the process; what they hold is no leak.
    environment = {**os.environ, "LD_PRELOAD": "", "ASAN_OPTIONS": "detect_leaks=0"}
    done = subprocess.run(
        [program, tmp_path / "cases"], capture_output=True, text=True, env=environment, check=False, timeout=200
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, f"{count * len(LIBRARIES)} cases\n", "")


def test_this_driver_sees_a_read_beyond_the_end(tmp_path: Path) -> None:
    source = tmp_path / "beyond.c"
    source.write_text("#include <stdlib.h>\nint main(void) { char *at = calloc(3, 1); return at[3]; }\n")
    program = compiled(source, tmp_path / "beyond", "-fsanitize=address,undefined")
    done = subprocess.run(
        [program], capture_output=True, env={**os.environ, "LD_PRELOAD": ""}, check=False, timeout=200
    )
    assert b"heap-buffer-overflow" in done.stderr
