"""Answers of ``nvidia-smi``, the query program of NVIDIA's driver; it uses no GPU."""

from __future__ import annotations

import re
import shutil
import subprocess
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from dlio_torch.errors import DlioError

PROGRAM = "nvidia-smi"
_TIMEOUT_S = 20
_UNDERLINE = re.compile(r"\x1b\[[0-9;]*m")
_GPU = re.compile(r"GPU (\d+): ")
_MIG = re.compile(r"\s+MIG (\S+)\s+Device\s+\d+: \(UUID: (MIG-[^)]+)\)")


class GpuQueryFailed(DlioError):
    """Error for a query program that is absent or gives no answer."""


class MigInstance(NamedTuple):
    """Part of a GPU in MIG mode, which programs use like a GPU.

    Attributes:
        profile: size of the part, for example ``1g.10gb``.
        uuid: its identifier.
    """

    profile: str
    uuid: str


def query_gpus(fields: Sequence[str]) -> list[dict[str, str]]:
    """Values of fields of ``nvidia-smi --query-gpu``, for each GPU in the order of PCI addresses.

    Args:
        fields: names of fields; sizes come in MiB, without a unit.

    Raises:
        GpuQueryFailed: the program is absent, fails, does not know a field, or gives another number of values.
    """
    answer = _answer(f"--query-gpu={','.join(fields)}", "--format=csv,noheader,nounits")
    rows = [[cell.strip() for cell in line.split(",")] for line in answer.splitlines() if line.strip()]
    try:
        return [dict(zip(fields, row, strict=True)) for row in rows]
    except ValueError as error:
        raise GpuQueryFailed(f"nvidia-smi failed: {error}") from None


def mig_instances() -> dict[int, tuple[MigInstance, ...]]:
    """MIG instances by number of the GPU (``nvidia-smi -L``); GPUs without instances have none.

    Raises:
        GpuQueryFailed: the program is absent or fails.
    """
    instances: dict[int, tuple[MigInstance, ...]] = {}
    number = -1
    for line in _answer("-L").splitlines():
        if match := _GPU.match(line):
            number = int(match[1])
            instances[number] = ()
        elif match := _MIG.match(line):
            instances[number] = (*instances.get(number, ()), MigInstance(match[1], match[2]))
    return instances


def nvlinks() -> dict[int, dict[int, int]]:
    """Number of NVLinks from each GPU to the other ones (``nvidia-smi topo -m``); GPUs without a link are left out.

    Raises:
        GpuQueryFailed: the program is absent or fails.
    """
    rows = [_UNDERLINE.sub("", line).split() for line in _answer("topo", "-m").splitlines()]
    heads = next((row for row in rows if row[:1] == ["GPU0"]), [])
    gpus = [head for head in heads if re.fullmatch(r"GPU\d+", head)]
    return {int(row[0][3:]): _links(gpus, row) for row in rows if row and row is not heads and row[0] in gpus}


def mebibytes(cell: str) -> int | None:
    """Bytes of a size in MiB; ``None`` for ``[N/A]``, as on chips whose CPU and GPU share their memory."""
    return int(cell) << 20 if cell.isdigit() else None


def _links(gpus: Sequence[str], row: Sequence[str]) -> dict[int, int]:
    # "NV12": a bond of 12 links; other words name a path through PCIe.
    cells: Mapping[str, str] = dict(zip(gpus, row[1:], strict=False))
    return {int(gpu[3:]): int(cell[2:]) for gpu, cell in cells.items() if re.fullmatch(r"NV\d+", cell)}


def _answer(*arguments: str) -> str:
    program = shutil.which(PROGRAM)
    if program is None:
        raise GpuQueryFailed("nvidia-smi is not installed")
    try:
        return subprocess.run(
            [program, *arguments], capture_output=True, text=True, timeout=_TIMEOUT_S, check=True
        ).stdout
    except (OSError, subprocess.SubprocessError, ValueError) as error:
        raise GpuQueryFailed(" ".join(f"nvidia-smi failed: {error}".split())) from None
