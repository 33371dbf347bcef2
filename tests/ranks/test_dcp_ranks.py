"""Checkpoints of several ranks by torch.distributed.checkpoint: beside a plain script, resharded, below Horovod."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from dcp_jobs import MODEL, dcp_checkpointer
from ranks import SUPPORT, Kind, need_horovod, run_ranks

from dlio_torch.analysis.run_recording import open_recording
from dlio_torch.iotrace.events.event_table import read_events
from dlio_torch.iotrace.fidelity.compare_recordings import compare
from dlio_torch.iotrace.recorder.preload import environment
from dlio_torch.native import NativeUnavailable

SIZES = (MODEL.hidden_size, MODEL.num_layers, MODEL.ffn_hidden_size, MODEL.vocab_size)


@dataclass(frozen=True)
class Recorded:
    """A program of two ranks with its recorded calls on the files of its checkpoints.

    Attributes:
        events: folder of the recording.
        folder: of the checkpoints.
        ranks: what each rank has printed.
    """

    events: Path
    folder: Path
    ranks: list[dict[str, Any]]

    def calls(self) -> dict[str, list[tuple[str, int]]]:
        """Name and bytes of each call on each file, in their order."""
        frame = read_events(self.events).frame.sort_values("start_ns")
        files: dict[str, list[tuple[str, int]]] = {}
        for file, op, size in zip(frame["file"], frame["op"], frame["bytes"], strict=True):
            of_file = files.setdefault(str(Path(str(file)).relative_to(self.folder)), [])
            # A folder is made again where the other rank has not made its parent yet.
            if op != "mkdir" or (op, size) not in of_file:
                of_file.append((str(op), int(size)))
        return files


@pytest.fixture(scope="module")
def ours(tmp_path_factory: pytest.TempPathFactory) -> Recorded:
    case = {"parallel": {"data": 2}, "save": [1, 2], "checkpoint": {"keep": 2}}
    return recorded(tmp_path_factory.mktemp("ours"), ["dcp_program.py"], [json.dumps(case)])


@pytest.fixture(scope="module")
def plain(tmp_path_factory: pytest.TempPathFactory) -> Recorded:
    return recorded(tmp_path_factory.mktemp("bare"), ["plain_fsdp.py"], list(map(str, SIZES)))


def recorded(folder: Path, program: Sequence[str], arguments: Sequence[str]) -> Recorded:
    checkpoints, events = folder / "checkpoints", folder / "events"
    events.mkdir()
    try:
        variables = environment(events, include=[f"{checkpoints}/**"])
    except NativeUnavailable as error:
        pytest.skip(str(error))
    return Recorded(events, checkpoints, ranks("torch", 2, [*program, checkpoints, *arguments], variables))


def ranks(kind: Kind, count: int, arguments: Sequence[Any], env: dict[str, str] | None = None) -> list[dict[str, Any]]:
    ended = run_ranks(kind, count, [SUPPORT / str(arguments[0]), *arguments[1:]], env=env)
    for rank in ended:
        assert rank.exit_code == 0, rank.stderr
    return [json.loads(rank.stdout.splitlines()[-1]) if rank.stdout else {} for rank in ended]


@pytest.mark.ranks
def test_system_calls_are_those_of_a_plain_script(ours: Recorded, plain: Recorded) -> None:
    comparison = compare(open_recording(ours.events), open_recording(plain.events), same_storage=False)
    worst = max(component.distance for component in comparison.components)
    assert worst <= 0.05, comparison.headline
    calls = ours.calls()
    assert calls == plain.calls()
    data = [f"step-{step}/__{rank}_0.distcp" for step in (1, 2) for rank in (0, 1)]
    assert {*data, "step-1/.metadata.tmp", "step-2/.metadata.tmp"} <= calls.keys()
    assert all(any(op == "fsync" for op, _ in calls[name]) for name in data)


@pytest.mark.ranks
def test_each_rank_writes_its_half_and_the_first_one_the_description(ours: Recorded) -> None:
    for rank, said in enumerate(ours.ranks):
        files = [ours.folder / "step-2" / f"__{rank}_0.distcp", *([ours.folder / "step-2/.metadata"] * (rank == 0))]
        assert [save["bytes"] for save in said["saves"]][1] == sum(file.stat().st_size for file in files)
        assert all(save["plan_s"] > 0 and save["fsync_s"] is not None for save in said["saves"])


@pytest.mark.ranks
def test_one_rank_of_two_describes_as_much_as_both(ours: Recorded, tmp_path: Path) -> None:
    saves = dcp_checkpointer(tmp_path, {"data": 2})
    saves.save(2)
    saves.close()
    both, alone = ((folder / "step-2/.metadata").stat().st_size for folder in (ours.folder, tmp_path))
    assert abs(alone - both) < both / 100


@pytest.mark.ranks
def test_a_checkpoint_of_two_ranks_is_read_by_one_and_by_three(ours: Recorded, tmp_path: Path) -> None:
    size = sum(file.stat().st_size for file in (ours.folder / "step-2").iterdir())
    saves = dcp_checkpointer(tmp_path / "one", restores=(ours.folder, 2))
    alone = saves.restore()  # verifies each element
    saves.close()
    assert alone is not None
    assert size * 0.95 < alone.bytes <= size
    three = in_a_thread("torch", 3, tmp_path / "three", ours.folder)
    assert all(0 < rank["bytes"] <= size for rank in three)  # 64 rows do not divide, nor do 250
    assert all(rank["metadata_s"] > 0 and rank["plan_s"] > 0 and rank["copy_s"] > 0 for rank in three)


@pytest.mark.ranks
def test_of_two_ranks_of_horovod_one_reads_the_weights(tmp_path: Path) -> None:
    need_horovod()
    first, second = in_a_thread("horovod", 2, tmp_path, tmp_path, restore_ranks=1, restore_part="model")
    assert second == {**second, "bytes": 0, "seconds": 0.0, "read_s": None}
    size = sum(file.stat().st_size for file in (tmp_path / "step-2").iterdir())
    assert size / 4 < first["bytes"] < size / 2  # a third, and the description


def in_a_thread(kind: Kind, count: int, folder: Path, source: Path, **checkpoint: Any) -> list[dict[str, Any]]:
    """Saves twice in a thread while the ranks sum numbers; returns restores of the second checkpoint in ``source``."""
    case = {
        "parallel": {"data": count},
        "save": [1, 2],
        "checkpoint": {"async_save": "thread", **checkpoint},
        "restore": [str(source), 2],
        "allreduce": 50,
    }
    said = ranks(kind, count, ["dcp_program.py", folder, json.dumps(case)])
    for rank in said:
        assert rank["sums"] == [float(count)] * 100
        assert [save["step"] for save in rank["saves"]] == [1, 2]
        assert all(save["stage_s"] > 0 for save in rank["saves"])
    assert [path.name for path in folder.iterdir()] == ["step-2"]
    return [rank["restore"] for rank in said]


@pytest.mark.ranks
def test_all_ranks_make_the_same_whole_files_as_the_first_alone(tmp_path: Path) -> None:
    pytest.importorskip("safetensors")
    options = {"layout": "safetensors", "ranks": "all", "keep": 1, "shard_bytes": 30_000, "consolidate": True}
    files = {}
    for makers in ("first", "all"):
        case = {"parallel": {"data": 2}, "save": [1], "checkpoint": {**options, "consolidate_ranks": makers}}
        ranks("torch", 2, ["dcp_program.py", tmp_path / makers, json.dumps(case)])
        files[makers] = {path.name: path.read_bytes() for path in (tmp_path / makers).rglob("model*") if path.is_file()}
    index = json.loads(files["all"].pop("model.safetensors.index.json"))
    assert index == json.loads(files["first"].pop("model.safetensors.index.json"))
    assert len(files["all"]) > 2  # more files than ranks
    assert files["all"] == files["first"]
