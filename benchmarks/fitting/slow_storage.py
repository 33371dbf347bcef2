"""A storage on which each read call takes longer, for programs and emulations alike: ``slow_reads.c``."""

from __future__ import annotations

import os
import sys
from dataclasses import dataclass
from pathlib import Path

from benchmarks.harness.rounds import Unavailable
from dlio_torch.native.build import compile_library

CALL_MS = 1.0
MIB_MS = 10.0
_COUNT_BYTES = 8


@dataclass(frozen=True)
class SlowStorage:
    """Library that slows reads, and counts those that it slowed.

    Attributes:
        library: the compiled file.
        counter: file of the count.
    """

    library: Path
    counter: Path

    @classmethod
    def compiled(cls, folder: Path) -> SlowStorage:
        """Compile the library in a folder.

        Raises:
            Unavailable: there is no compiler.
        """
        target = folder / "slow_reads.so"
        try:
            compile_library("slow_reads", target, source_dir=Path(__file__).parent)
        except OSError as error:
            raise Unavailable(str(error)) from error
        return cls(target, folder / "slow_reads.count")

    def variables(self, folder: Path, call_ms: float = CALL_MS, mib_ms: float = MIB_MS) -> dict[str, str]:
        """Environment variables of processes whose reads are slow; the count begins at 0.

        Args:
            folder: files below it are slow.
            call_ms: added to each call that returns bytes.
            mib_ms: added for each MiB that it returns.
        """
        self.counter.write_bytes(bytes(_COUNT_BYTES))
        before = os.environ.get("LD_PRELOAD", "")
        return {
            "LD_PRELOAD": f"{self.library}:{before}" if before else str(self.library),
            "SLOW_READS_BELOW": str(folder.resolve()),
            "SLOW_READS_NS": str(round(call_ms * 1e6)),
            "SLOW_READS_NS_PER_MIB": str(round(mib_ms * 1e6)),
            "SLOW_READS_COUNT": str(self.counter),
        }

    @property
    def slowed(self) -> int:
        """Read calls that were slowed since the last call of :meth:`variables`."""
        return int.from_bytes(self.counter.read_bytes(), sys.byteorder)
