"""Checkpoints of one rank by torch.distributed.checkpoint: files, times, retention, errors."""

from __future__ import annotations

import math
import pickle
import re
import subprocess
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from dcp_jobs import MODEL, TENSORS, dcp_checkpointer, dcp_config
from described_jobs import LLAMA3_8B, jobs
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.distributed.checkpoint import FileSystemReader
from torch.distributed.checkpoint._dedup_save_plans import dedup_save_plans
from torch.distributed.checkpoint.metadata import TensorStorageMetadata
from torch.distributed.checkpoint.planner import WriteItem

from dlio_torch.checkpoint.job.saved_state import job_bytes, rank_bytes
from dlio_torch.checkpoint.layouts.dcp import job_plans
from dlio_torch.checkpoint.layouts.dcp.job_plans import local_plan
from dlio_torch.checkpoint.layouts.dcp.layout import DcpLayout
from dlio_torch.checkpoint.layouts.dcp.written_tensors import written_tensors
from dlio_torch.checkpoint.saves import total_bytes
from dlio_torch.config.check import ConfigCheck
from dlio_torch.config.schema import CheckpointConfig, Config
from dlio_torch.config.schema_model import ModelConfig, ParallelConfig
from dlio_torch.config.validate_checkpoints import check_dcp, check_restoring_ranks
from dlio_torch.errors import ConfigError, DataError, PreconditionError
from dlio_torch.preflight.checkpoint_layout import check_checkpoints

HEADER = 2100
"""Upper limit of torch.save's bytes around a tensor, and of the part of the description about it."""


def names(folder: Path) -> list[str]:
    return sorted(str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file())


def test_a_save_has_its_files_bytes_and_times_and_is_read_back(tmp_path: Path) -> None:
    saves = dcp_checkpointer(tmp_path, keep=2)
    for step in (1, 2, 3):
        saves.save(step)
    saves.end(3)
    assert names(tmp_path) == [f"step-{step}/{name}" for step in (2, 3) for name in (".metadata", "__0_0.distcp")]
    assert [times.step for times in saves.times] == [1, 2, 3]
    for times in saves.times:
        assert times.stage_s is None
        parts = (times.plan_s, times.write_s, times.fsync_s)
        assert all(part is not None and part > 0 for part in parts)
        assert sum(part or 0 for part in parts) <= times.durable_s <= times.stall_s
    size = sum(path.stat().st_size for path in (tmp_path / "step-3").iterdir())
    assert saves.times[-1].bytes == size
    tensors = DcpLayout().saved_bytes(dcp_config({}, {}), 0)
    assert tensors == rank_bytes(MODEL, ParallelConfig(fsdp="full"), 0)
    assert tensors < size < tensors + HEADER * (4 * TENSORS + 20)
    read = saves.restore()
    saves.close()
    assert read is not None
    assert size * 0.98 < read.bytes <= size
    parts = (read.metadata_s, read.plan_s, read.read_s, read.copy_s)
    assert sum(part or 0 for part in parts) <= read.seconds
    assert None not in parts


@pytest.mark.parametrize("kind", ["thread", "process"])
def test_a_save_in_the_background_holds_the_state_of_its_begin(
    kind: str, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    saves = dcp_checkpointer(tmp_path, async_save=kind, keep=0)
    saves.save(1)
    saves.save(2)  # awaits the first, as torchtitan does
    assert [times.step for times in saves.times] in ([1], [1, 2])
    saves.end(2)
    first, second = saves.times
    assert first.stage_s is not None
    assert first.stage_s <= first.stall_s
    assert second.start_ns < first.start_ns + first.durable_s * 1e9 <= second.start_ns + second.stall_s * 1e9
    for times in saves.times:
        parts = [times.plan_s or 0.0, times.write_s or 0.0, times.fsync_s or 0.0]
        assert min(parts) > 0
        assert sum(parts) <= times.durable_s
    assert second.bytes == sum(path.stat().st_size for path in (tmp_path / "step-2").iterdir())
    assert saves.restore() is not None
    saves.close()
    assert capfd.readouterr() == ("", "")


def test_a_rank_of_a_larger_job_plans_and_describes_the_whole_job(tmp_path: Path) -> None:
    saves = dcp_checkpointer(tmp_path, {"tensor": 2, "data": 3, "pipeline": 2})
    saves.save(1)
    read = saves.restore()
    saves.close()
    assert names(tmp_path) == ["step-1/.metadata", "step-1/__0_0.distcp"]
    metadata = FileSystemReader(tmp_path / "step-1").read_metadata()
    weights = {n: md for n, md in metadata.state_dict_metadata.items() if n.startswith("model.")}
    assert len(weights) == TENSORS
    for tensor in weights.values():
        assert isinstance(tensor, TensorStorageMetadata)
        assert sum(math.prod(chunk.sizes) for chunk in tensor.chunks) == math.prod(tensor.size)
    storage: Any = metadata.storage_data
    ranks = {int(place.relative_path.split("_")[2]) for place in storage.values()}
    assert ranks == set(range(12))
    written = [place for place in storage.values() if place.offset >= 0]
    assert {place.relative_path for place in written} == {"__0_0.distcp"}
    assert read is not None
    assert 0 < read.bytes <= saves.times[0].bytes


def test_a_cached_plan_is_made_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from torch.distributed.checkpoint import default_planner

    plans: list[int] = []
    plan = default_planner.create_default_global_save_plan

    def counted(every: Any, *args: Any) -> Any:
        plans.append(len(every))
        return plan(every, *args)

    monkeypatch.setattr(default_planner, "create_default_global_save_plan", counted)
    for cached, count in ((True, 1), (False, 3)):
        saves = dcp_checkpointer(tmp_path / str(cached), {"data": 2}, plan_cache=cached)
        plans.clear()  # with that of the absent rank's entries
        for step in (1, 2, 3):
            saves.save(step)
        assert plans == [2] * count
        assert saves.restore() is not None
        saves.close()


@pytest.mark.parametrize("cached", [True, False])
def test_entries_of_absent_ranks_are_made_before_the_first_save(
    cached: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    saves = dcp_checkpointer(tmp_path, {"tensor": 2, "data": 2}, plan_cache=cached, keep=2)
    monkeypatch.setattr(job_plans, "place_in_checkpoint", lambda *_: pytest.fail("an entry is made by a save"))
    for step in (1, 2):
        saves.save(step)
    saves.close()
    places: list[Any] = [FileSystemReader(tmp_path / f"step-{step}").read_metadata().storage_data for step in (1, 2)]
    assert places[0] == places[1]
    assert {place.relative_path for place in places[0].values()} == {f"__{rank}_0.distcp" for rank in range(4)}


@pytest.mark.parametrize(
    ("options", "files"),
    [
        ({"use_collectives": False}, [".metadata", "__0_0.distcp"]),
        ({"thread_count": 2}, [".metadata", "__0_0.distcp", "__0_1.distcp"]),
    ],
)
def test_options_of_the_writer(options: dict[str, Any], files: list[str], tmp_path: Path) -> None:
    saves = dcp_checkpointer(tmp_path, **options)
    saves.save(1)
    found = names(tmp_path / "step-1")
    assert [re.sub(r"^__0\.", ".", name) for name in found] == sorted(files)
    assert saves.times[0].bytes == sum(path.stat().st_size for path in (tmp_path / "step-1").iterdir())
    assert saves.restore() is not None
    saves.close()


def test_each_tensor_is_a_file_that_is_not_flushed(tmp_path: Path) -> None:
    saves = dcp_checkpointer(tmp_path, single_file_per_rank=False, sync_files=False)
    saves.save(1)
    saves.close()
    assert saves.times[0].fsync_s is None
    described = FileSystemReader(tmp_path / "step-1").read_metadata()
    assert len(names(tmp_path)) == len(described.state_dict_metadata) + 1


def described(model: ModelConfig, parallel: ParallelConfig, **options: Any) -> Config:
    return Config(model=model, parallel=parallel, checkpoint=CheckpointConfig(layout="dcp", **options))


@settings(max_examples=60, deadline=None)
@given(jobs())
def test_ranks_save_once_what_several_hold(job: tuple[ModelConfig, ParallelConfig]) -> None:
    model, parallel = job
    config = described(model, parallel)
    assert sum(DcpLayout().saved_bytes(config, rank) for rank in range(parallel.world_size)) == job_bytes(model)
    assert total_bytes(config, parallel.world_size) == job_bytes(model)
    alone = replace(config, checkpoint=CheckpointConfig(layout="dcp", use_collectives=False))
    assert DcpLayout().saved_bytes(alone, 0) == rank_bytes(model, parallel, 0)


@settings(max_examples=15, deadline=None)
@given(jobs(), st.integers(0, 3))
def test_each_rank_saves_what_the_planner_gives_it(job: tuple[ModelConfig, ParallelConfig], states: int) -> None:
    model, parallel = replace(job[0], optimizer_states=states), job[1]
    plans = dedup_save_plans([local_plan(model, parallel, rank) for rank in range(parallel.world_size)])
    config = described(model, parallel, single_file_per_rank=False)
    for rank, plan in enumerate(plans):
        sizes = sorted(size for item in plan.items if (size := written_bytes(item)) is not None)
        assert sorted(DcpLayout().file_sizes(config, rank)) == sizes
        assert DcpLayout().saved_bytes(config, rank) == sum(sizes)


def written_bytes(item: WriteItem) -> int | None:
    """Size of the part of a weight or of the optimizer's state; None for another entry."""
    data = item.tensor_data
    if data is None or item.index.fqn.endswith(".step"):
        return None
    return data.chunk.sizes.numel() * data.properties.dtype.itemsize


def test_a_rank_writes_as_much_as_its_plan_says(tmp_path: Path) -> None:
    parallel = {"fsdp": "none", "data": 3}
    saves = dcp_checkpointer(tmp_path, parallel)
    saves.save(1)
    saves.close()
    tensors = DcpLayout().saved_bytes(dcp_config(parallel, {}), 0)
    share = job_bytes(MODEL) // 3
    assert tensors != share
    assert tensors < (tmp_path / "step-1/__0_0.distcp").stat().st_size < tensors + HEADER * (4 * TENSORS + 20)


def test_a_job_with_very_many_blocks_is_taken_to_share_equally() -> None:
    model, parallel = LLAMA3_8B, ParallelConfig(tensor=8, data=128, fsdp="full")
    first, second = (DcpLayout().saved_bytes(described(model, parallel), rank) for rank in (0, 1))
    assert first == second
    assert written_tensors(model, parallel) is None


def cut(folder: Path) -> None:
    file = folder / "__0_0.distcp"
    file.write_bytes(file.read_bytes()[:5000])


def flip(folder: Path) -> None:
    file = folder / "__0_0.distcp"
    content = bytearray(file.read_bytes())
    content[len(content) // 2] ^= 1
    file.write_bytes(bytes(content))


def garble(folder: Path) -> None:
    (folder / ".metadata").write_bytes(b"no pickle")


def replace_description(folder: Path) -> None:
    (folder / ".metadata").write_bytes(pickle.dumps({"a": 1}))


DAMAGES: list[tuple[Callable[[Path], Any], str]] = [
    (lambda folder: (folder / ".metadata").unlink(), r"step-1 is incomplete: \.metadata is missing"),
    (lambda folder: (folder / "__0_0.distcp").unlink(), r"__0_0\.distcp cannot be read: No such file"),
    (garble, r"\.metadata is damaged"),
    (replace_description, r"\.metadata is damaged"),
    (cut, r"__0_0\.distcp.* is damaged"),
    (flip, r"__0_0\.distcp of step 1 is damaged: element \[.*\] of .* differs|__0_0\.distcp.* is damaged"),
    (lambda folder: folder.rename(folder.with_name("step-7")), r"there is no checkpoint .*step-1"),
]


@pytest.mark.parametrize(("damage", "line"), DAMAGES)
def test_a_damaged_checkpoint_is_refused_in_one_line(
    damage: Callable[[Path], Any], line: str, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    saves = dcp_checkpointer(tmp_path)
    saves.save(1)
    damage(tmp_path / "step-1")
    with pytest.raises(DataError, match=line) as caught:
        saves.restore()
    saves.close()
    assert "\n" not in str(caught.value)
    assert "Traceback" not in capfd.readouterr().err


@pytest.mark.parametrize(
    ("model", "line"),
    [
        (replace(MODEL, num_layers=3), r"is of another model: Missing key .*layers\.2\."),
        (replace(MODEL, ffn_hidden_size=200), r"is of another model: Size mismatch"),
        (replace(MODEL, optimizer_states=3), r"is of another model: Missing key .*max_exp_avg_sq"),
    ],
)
def test_a_checkpoint_of_another_model_is_refused(model: ModelConfig, line: str, tmp_path: Path) -> None:
    saves = dcp_checkpointer(tmp_path)
    saves.save(1)
    saves.close()
    other = dcp_checkpointer(tmp_path / "other", model=model, restores=(tmp_path, 1))
    with pytest.raises(DataError, match=line) as caught:
        other.restore()
    other.close()
    assert "\n" not in str(caught.value)


def test_the_step_of_a_checkpoint_is_part_of_it(tmp_path: Path) -> None:
    saves = dcp_checkpointer(tmp_path)
    saves.save(1)
    saves.close()
    (tmp_path / "step-1").rename(tmp_path / "step-2")
    other = dcp_checkpointer(tmp_path / "other", restores=(tmp_path, 2))
    with pytest.raises(DataError, match=r"step is 1, not 2"):
        other.restore()
    other.close()


@pytest.mark.parametrize("kind", ["none", "thread"])
def test_a_full_device_leaves_the_older_checkpoint(kind: str, tmp_path: Path) -> None:
    saves = dcp_checkpointer(tmp_path, async_save=kind)
    saves.save(1)
    saves.end(1)
    (tmp_path / "step-2").mkdir()
    (tmp_path / "step-2" / "__0_0.distcp").symlink_to("/dev/full")

    def save() -> None:
        saves.save(2)
        saves.end(2)

    with pytest.raises(
        PreconditionError, match=r"step-2 cannot be written \(it needs [\d.]+ MiB, .*: No space left"
    ) as caught:
        save()
    assert "\n" not in str(caught.value)
    saves.close()
    assert names(tmp_path) == ["step-1/.metadata", "step-1/__0_0.distcp"]


def test_a_process_that_cannot_be_started_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*args: Any, **options: Any) -> None:
        raise BlockingIOError(11, "Resource temporarily unavailable")

    monkeypatch.setattr(subprocess, "run", refuse)
    with pytest.raises(PreconditionError, match=r"async_save=process: a process cannot be started.*async_save=thread"):
        dcp_checkpointer(tmp_path / "new", async_save="process")
    monkeypatch.undo()
    monkeypatch.setattr("multiprocessing.current_process", lambda: SimpleNamespace(daemon=True))
    with pytest.raises(PreconditionError, match=r"this process is a daemon"):
        dcp_checkpointer(tmp_path / "new", async_save="process")
    with pytest.raises(PreconditionError, match=r"this process is a daemon"):
        check_checkpoints(dcp_config({}, {"async_save": "process"}))  # of a run, before it writes anything
    check_checkpoints(dcp_config({}, {"async_save": "thread"}))
    assert not (tmp_path / "new").exists()


@pytest.mark.parametrize(
    ("name", "options"),
    [
        ("default_planner.DefaultSavePlanner", {"plan_cache": True}),
        ("state_dict_saver.save", {"use_collectives": False}),
    ],
)
def test_what_an_older_torch_cannot_do_is_refused(
    name: str, options: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    check_checkpoints(dcp_config({}, options))
    monkeypatch.setattr(f"torch.distributed.checkpoint.{name}", lambda: None)
    with pytest.raises(PreconditionError, match=rf"checkpoint\.{next(iter(options))}=.*install PyTorch 2\.\d"):
        check_checkpoints(dcp_config({}, options))
    check_checkpoints(dcp_config({}, {}))


@pytest.mark.skipif(not torch.cuda.is_available(), reason="no GPU")
@pytest.mark.parametrize("kind", ["thread", "process"])
def test_a_state_on_the_gpu_is_staged_in_pinned_memory(kind: str, tmp_path: Path) -> None:
    saves = dcp_checkpointer(tmp_path, async_save=kind, pinned_staging=True)
    saves.save(1)
    saves.end(1)
    assert saves.restore() is not None
    saves.close()


@pytest.mark.parametrize(
    ("config", "line"),
    [
        (replace(dcp_config({}, {}), model=ModelConfig()), r"layout=dcp with model\.hidden_size=0"),
        (dcp_config({"zero": 1, "fsdp": "none"}, {}), r"layout=dcp with parallel\.zero=1"),
        (dcp_config({}, {"fsync": True, "sync_files": False}), r"fsync=true with checkpoint\.sync_files=false"),
        (dcp_config({}, {"pinned_staging": True}), r"pinned_staging=true with train\.device=cpu"),
        (dcp_config({"tensor": 2}, {"restore_ranks": 3}), r"restore_ranks=3 .*set checkpoint\.restore_ranks=2"),
        (dcp_config({}, {"restore_ranks": 1, "use_collectives": False}), r"use_collectives=false"),
    ],
)
def test_options_that_do_not_fit_are_refused(config: Config, line: str) -> None:
    with pytest.raises(ConfigError, match=line) as caught:
        check_dcp(config, ConfigCheck(config, {}).fail)
    assert "\n" not in str(caught.value)


def test_only_started_ranks_read() -> None:
    def check(restoring: int, started: int) -> None:
        config = dcp_config({"data": 4}, {"restore_ranks": restoring})
        check_restoring_ranks(config, started, ConfigCheck(config, {}).fail)

    check(3, 4)
    check(0, 2)
    with pytest.raises(ConfigError, match=r"restore_ranks=3: only 2 ranks were started"):
        check(3, 2)
    with pytest.raises(ConfigError, match=r"restore_ranks=2: the job has 4 ranks, of which 3"):
        check(2, 3)
