"""A native loop of preads, which measures their cost without an interpreter."""

from __future__ import annotations

import subprocess
from pathlib import Path

from dlio_torch.native.build import find_compiler

CALL_BYTES, WARMUP_CALLS = 4096, 1000

LOOP = r"""
#define _GNU_SOURCE
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

int main(int count, char **words)
{
    static char buffer[4096];
    long calls = atol(words[2]), blocks = atol(words[3]);
    int file = open(words[1], O_RDONLY);
    struct timespec start, end, cpu_start, cpu_end;
    for (long i = -1000; i < calls; i++) {
        if (i == 0) {
            clock_gettime(CLOCK_MONOTONIC, &start);
            clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &cpu_start);
        }
        if (pread(file, buffer, sizeof buffer, (i + 1000) % blocks * (long)sizeof buffer) != sizeof buffer)
            return 1;
    }
    clock_gettime(CLOCK_MONOTONIC, &end);
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &cpu_end);
    printf("%.3f %.3f\n", ((end.tv_sec - start.tv_sec) * 1e9 + (end.tv_nsec - start.tv_nsec)) / calls,
           ((cpu_end.tv_sec - cpu_start.tv_sec) * 1e9 + (cpu_end.tv_nsec - cpu_start.tv_nsec)) / calls);
    return count != 4;
}
"""
"""Arguments: file, calls, blocks of the file.  Prints nanoseconds per call on the wall and of the processor."""


def compile_loop(folder: Path) -> Path:
    """The native loop; there must be a compiler."""
    compiler = find_compiler()
    assert compiler is not None
    program, source = folder / "loop", folder / "loop.c"
    source.write_text(LOOP, encoding="ascii")
    subprocess.run([*compiler, "-O2", "-o", str(program), str(source)], check=True)
    return program
