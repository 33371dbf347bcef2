"""A rank that saves and restores with ``checkpoint.layout=dcp``: ``python dcp_program.py <folder> <JSON>``.

The JSON object has ``parallel`` and ``checkpoint`` (options), ``save`` (steps), ``restore`` (a folder and a step) and
``allreduce`` (a number of sums while a save runs).  Each rank prints one JSON object.
"""

from __future__ import annotations

import json
import sys
from dataclasses import asdict
from pathlib import Path
from typing import Any

import torch
from dcp_jobs import dcp_config

from dlio_torch.checkpoint.base import SaverSetup
from dlio_torch.checkpoint.checkpointer import open_checkpointer
from dlio_torch.dist.registry import connect
from dlio_torch.errors import DlioError
from dlio_torch.iotrace.recorder.spans import NULL


def main(folder: Path, case: dict[str, Any]) -> dict[str, Any]:
    config = dcp_config(case.get("parallel", {}), case.get("checkpoint", {}))
    comm = connect(config.dist)
    restored = case.get("restore")
    restores = (Path(restored[0]), int(restored[1])) if restored else None
    saves = open_checkpointer(SaverSetup(config, folder, comm, NULL), restores=restores)
    sums = []
    for step in case.get("save", []):
        saves.save(step)
        sums += [float(comm.allreduce(torch.ones(1))) for _ in range(case.get("allreduce", 0))]
    saves.end(case.get("save", [0])[-1])
    read = saves.restore() if restored else None
    saves.close()
    comm.close()
    times = [asdict(save) for save in saves.times]
    return {"rank": comm.rank, "saves": times, "restore": None if read is None else asdict(read), "sums": sums}


if __name__ == "__main__":
    try:
        print(json.dumps(main(Path(sys.argv[1]), json.loads(sys.argv[2]))))
    except DlioError as error:
        print(f"error: {error}", file=sys.stderr)
        sys.exit(error.exit_code)
