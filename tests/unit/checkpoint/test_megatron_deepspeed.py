"""Layout megatron_deepspeed: DeepSpeed's names, the bytes of MLPerf Storage, and files that are read back verified."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from collections import Counter
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from checkpointers import job_checkpointers, restore_problem, saved_names
from described_jobs import LLAMA3_8B, LLAMA3_405B, MLPERF_1T, MLPERF_70B, SMALL

from dlio_torch.checkpoint.layouts.megatron_deepspeed.deepspeed_files import read_files, saved_files
from dlio_torch.checkpoint.registry import layout_of
from dlio_torch.config.compose import compose
from dlio_torch.config.schema import CheckpointConfig, Config
from dlio_torch.config.schema_model import ModelConfig, ParallelConfig
from dlio_torch.errors import ConfigError, DataError, DlioError
from dlio_torch.ownership.names import FileNames

GIB = 1 << 30
needs_strace = pytest.mark.skipif(shutil.which("strace") is None, reason="strace is not installed")

SAVED = CheckpointConfig(layout="megatron_deepspeed", every_steps=1)


def job(model: ModelConfig = SMALL, saved: CheckpointConfig = SAVED, **parallel: int) -> Config:
    return Config(model=model, parallel=ParallelConfig(**parallel), checkpoint=saved)  # type: ignore[arg-type]


def norms(model: ModelConfig) -> int:
    return (2 * model.num_layers + 1) * model.hidden_size


def parameters_of(model: ModelConfig) -> int:
    """The formula of MLPerf Storage."""
    h, f, v = model.hidden_size, model.ffn_hidden_size, model.vocab_size
    attention = 2 * h * h + 2 * h * h * model.kv_heads // model.num_heads
    return 2 * v * h + model.num_layers * (attention + 3 * h * f + 2 * h) + h


JOBS = {
    "8B": (LLAMA3_8B, ParallelConfig(data=8, zero=3), 16, 104.7),
    "70B": (MLPERF_70B, ParallelConfig(tensor=8, data=8, zero=3), 128, 911.2),
    "405B": (LLAMA3_405B, ParallelConfig(tensor=8, pipeline=32, data=2, zero=1), 8 * 129 + 512, 5291.7),
    "1T": (MLPERF_1T, ParallelConfig(tensor=8, pipeline=64, data=2, zero=1), 8 * 131 + 1024, 15427.1),
}


@pytest.mark.parametrize("name", JOBS)
def test_files_and_bytes_of_mlperf_to_the_byte(name: str) -> None:
    model, parallel, count, total = JOBS[name]
    model = replace(model, dtype="bfloat16", master_weights=True)
    files = [file for rank in range(parallel.world_size) for file in saved_files(model, parallel, rank)]
    assert len({file.name for file in files}) == len(files) == count
    elements = parameters_of(model)
    assert 14 * elements / GIB == pytest.approx(total, abs=0.05)
    # Each tensor-parallel rank holds, and Megatron saves, the norms whole.
    elements += (parallel.tensor - 1) * norms(model)
    assert sum(file.bytes for file in files if not file.optimizer_only) == 2 * elements
    assert sum(file.bytes for file in files if file.optimizer_only) == 12 * elements


@pytest.mark.parametrize(
    ("name", "ranks", "optimizer", "model"), [("8B", "1_mp_rank_00", 11.22, 1.87), ("70B", "0_mp_rank_01", 12.20, 2.03)]
)
def test_two_files_of_each_rank_with_zero_3(name: str, ranks: str, optimizer: float, model: float) -> None:
    weights, state = saved_files(replace(JOBS[name][0], dtype="bfloat16", master_weights=True), JOBS[name][1], 1)
    assert weights.name == f"global_step{{step}}/zero_pp_rank_{ranks}_model_states.pt"
    assert state.name == f"global_step{{step}}/bf16_zero_pp_rank_{ranks}_optim_states.pt"
    assert round(weights.bytes / GIB, 2) == model
    assert round(state.bytes / GIB, 2) == optimizer


def test_ranks_of_a_pipeline_are_unbalanced_and_each_layer_has_a_file() -> None:
    model, parallel, _, _ = JOBS["405B"]
    model = replace(model, dtype="bfloat16", master_weights=True)
    counts = Counter(len(saved_files(model, parallel, rank)) for rank in range(512))
    # Of 32 stages two have 3 layers, of which the last one also has norm and head; the first one has the embedding.
    assert counts == {1: 256, 5: 29 * 8, 6: 2 * 8, 4: 8}
    layers = {file.name: file for rank in range(512) for file in saved_files(model, parallel, rank)}
    layer = layers["global_step{step}/layer_77-model_03-model_states.pt"]
    h, f = model.hidden_size, model.ffn_hidden_size
    assert layer.bytes == 2 * ((2 * h * h + 2 * h * h // 16 + 3 * h * f) // 8 + 2 * h)
    assert [tensor.name for tensor in layer.tensors][:2] == [
        "layers.76.attention.wq.weight",
        "layers.76.attention.wk.weight",
    ]


@pytest.mark.parametrize(
    ("parallel", "expected"),
    [
        (
            {"data": 2, "zero": 3},
            [
                f"{p}zero_pp_rank_{d}_mp_rank_00_{k}_states.pt"
                for d in (0, 1)
                for p, k in (("bf16_", "optim"), ("", "model"))
            ],
        ),
        (
            {"data": 2, "zero": 2},
            ["mp_rank_00_model_states.pt", *(f"bf16_zero_pp_rank_{d}_mp_rank_00_optim_states.pt" for d in (0, 1))],
        ),
        ({"tensor": 2, "data": 2}, ["mp_rank_00_model_states.pt", "mp_rank_01_model_states.pt"]),
        (
            {"tensor": 2, "pipeline": 3, "zero": 1},
            [
                *(f"layer_{n:02d}-model_{t:02d}-model_states.pt" for n in range(6) for t in (0, 1)),
                *(f"bf16_zero_pp_rank_0_mp_rank_{m:02d}_optim_states.pt" for m in range(6)),
            ],
        ),
        (
            {"pipeline": 2},
            [
                *(f"layer_{n:02d}-model_00-model_states.pt" for n in range(6)),
                *(f"mp_rank_{m:02d}_model_states.pt" for m in (0, 1)),
            ],
        ),
    ],
    ids=["zero3", "zero2", "plain", "pipeline-zero1", "pipeline-plain"],
)
def test_files_are_written_and_read_back(parallel: dict[str, int], expected: list[str], tmp_path: Path) -> None:
    config = job(**parallel)
    ranks = job_checkpointers(config, tmp_path, config.parallel.world_size)
    for rank in reversed(ranks):
        rank.save(7)
    assert saved_names(tmp_path) == [*sorted(f"global_step7/{name}" for name in expected), "latest"]
    assert (tmp_path / "latest").read_text() == "global_step7"
    elements = parameters_of(SMALL) + (config.parallel.tensor - 1) * norms(SMALL)
    layout = layout_of("megatron_deepspeed")
    assert layout is not None
    assert sum(layout.saved_bytes(config, rank) for rank in range(len(ranks))) == 14 * elements
    sizes = {path: path.stat().st_size for path in (tmp_path / "global_step7").iterdir()}
    assert sum(rank.written_bytes for rank in ranks) == sum(sizes.values())
    for number, rank in enumerate(ranks):
        times = rank.restore()
        assert times is not None
        read = read_files(config.model, config.parallel, number)
        assert times.bytes == sum(sizes[file.path(tmp_path, 7)] for file in read)


def test_the_file_exceeds_its_tensors_by_headers_only(tmp_path: Path) -> None:
    config = job(replace(SMALL, hidden_size=256, vocab_size=16384, num_layers=1, optimizer_states=0), zero=3)
    [rank] = job_checkpointers(config, tmp_path, 1)
    rank.save(1)
    for file in saved_files(config.model, config.parallel, 0):
        size = file.path(tmp_path, 1).stat().st_size
        assert 9_000_000 < file.bytes < size <= file.bytes * 1.001


def test_content_is_that_of_the_zero_optimizer(tmp_path: Path) -> None:
    for stage, base, weights in (
        (2, "base_optimizer_state", "single_partition_of_fp32_groups"),
        (3, "optimizer_state_dict", "fp32_flat_groups"),
    ):
        [rank] = job_checkpointers(job(zero=stage), tmp_path / str(stage), 1)
        rank.save(3)
        [path] = (tmp_path / str(stage) / "global_step3").glob("*optim_states.pt")
        state = torch.load(path, weights_only=True)["optimizer_state_dict"]
        assert state["zero_stage"] == stage
        moments = state[base]["state"]
        assert [list(group) for group in moments.values()] == [["exp_avg", "exp_avg_sq"]] * 2
        for group, weight in zip(moments.values(), state[weights], strict=True):
            assert group["exp_avg"].shape == group["exp_avg_sq"].shape == weight.shape
            assert weight.dtype == torch.float32
        [path] = (tmp_path / str(stage) / "global_step3").glob("*model_states.pt")
        model = torch.load(path, weights_only=True)
        assert model["global_steps"] == 3
        assert model["module"]["norm.weight"].dtype == torch.bfloat16


def test_the_model_alone_is_restored(tmp_path: Path) -> None:
    config = job(saved=replace(SAVED, restore_part="model"), data=2, zero=3)
    ranks = job_checkpointers(config, tmp_path, 2)
    for rank in ranks:
        rank.save(1)
    for path in tmp_path.glob("global_step1/*optim_states.pt"):
        path.unlink()
    for number, rank in enumerate(ranks):
        times = rank.restore()
        assert times is not None
        assert (
            times.bytes == (tmp_path / f"global_step1/zero_pp_rank_{number}_mp_rank_00_model_states.pt").stat().st_size
        )


def test_an_incomplete_save_is_not_restored(tmp_path: Path) -> None:
    """The first rank writes ``latest`` when all ranks have written their files."""
    first, second = job_checkpointers(job(saved=replace(SAVED, keep=0), data=2, zero=3), tmp_path, 2)
    for step in (1, 2):
        second.save(step)
        if step == 1:
            first.save(1)
    with pytest.raises(DataError, match=r"global_step2 is not complete: .*latest names 'global_step1'") as caught:
        second.restore()
    assert "\n" not in str(caught.value)
    (tmp_path / "latest").unlink()
    with pytest.raises(DataError, match=r"global_step1 is not complete: .*latest does not exist"):
        first.restore()


def test_another_or_a_damaged_checkpoint_is_refused(tmp_path: Path) -> None:
    config = job(zero=3)
    [rank] = job_checkpointers(config, tmp_path, 1)
    rank.save(1)
    assert "its tensor tok_embeddings.weight is torch.bfloat16 [1248], not torch.bfloat16 [96]" in restore_problem(
        job(replace(SMALL, vocab_size=2), zero=3), tmp_path, 1
    )
    assert "_model_states.pt holds another state: it holds no tensor layers.3.attention.wq.weight" in restore_problem(
        job(replace(SMALL, num_layers=4), zero=3), tmp_path, 1
    )
    assert "has another content at [0]" in restore_problem(replace(config, seed=2), tmp_path, 1)
    assert "/mp_rank_00_model_states.pt cannot be read: No such file" in restore_problem(job(zero=1), tmp_path, 1)
    [path] = tmp_path.glob("global_step1/*optim_states.pt")
    os.truncate(path, 1000)
    assert f"checkpoint file {path} is damaged: " in restore_problem(config, tmp_path, 1)
    [path] = tmp_path.glob("global_step1/*model_states.pt")
    content = torch.load(path, weights_only=True)
    content["module"]["norm.weight"].view(torch.int16)[5] += 1
    torch.save(content, path)
    assert "its tensor norm.weight has another content at [5]" in restore_problem(config, tmp_path, 1)


def test_old_checkpoints_go_when_the_last_rank_has_left_them(tmp_path: Path) -> None:
    ranks = job_checkpointers(job(data=2, zero=3), tmp_path, 2)
    for step in (1, 2):
        for rank in ranks:
            rank.save(step)
            rank.due(1, step, False)
    assert {path.name for path in tmp_path.iterdir()} == {"global_step2", "latest"}
    shutil.rmtree(tmp_path / "global_step2")  # by another rank
    for rank in ranks:
        rank.save(3)
        rank.due(1, 3, False)
    assert {path.name for path in tmp_path.iterdir()} == {"global_step3", "latest"}


def test_a_full_device_leaves_the_checkpoint_before(tmp_path: Path) -> None:
    [rank] = job_checkpointers(job(zero=3), tmp_path, 1)
    rank.save(1)
    before = saved_names(tmp_path)
    (tmp_path / "global_step2").mkdir()
    (tmp_path / "global_step2" / "bf16_zero_pp_rank_0_mp_rank_00_optim_states.pt").symlink_to("/dev/full")
    with pytest.raises(DlioError, match=r"optim_states\.pt cannot be written \(it needs 889 KiB") as caught:
        rank.save(2)
    assert "\n" not in str(caught.value)
    assert saved_names(tmp_path) == before
    assert not (tmp_path / "global_step2").exists()
    rank.restore()


def test_clean_recognises_the_files(tmp_path: Path) -> None:
    layout = layout_of("megatron_deepspeed")
    assert layout is not None
    for number, parallel in enumerate(({"zero": 3}, {"zero": 2}, {}, {"pipeline": 2, "zero": 1})):
        config = job(**parallel)
        folder = tmp_path / str(number)
        for rank in job_checkpointers(config, folder, config.parallel.world_size):
            rank.save(12)
        known = FileNames(layout.file_names(config))
        assert all(known.has_file(tuple(name.split("/"))) for name in saved_names(folder))
        assert known.has_folder(("global_step12",))
        assert not known.has_file(("global_step12", "other.pt"))


@pytest.mark.parametrize(
    ("options", "line"),
    [
        ([], "checkpoint.layout=megatron_deepspeed .*this layout saves the state of a model, but none is described"),
        (["parallel.fsdp=full", "parallel.data=2"], "parallel.fsdp=full .*DeepSpeed divides the state by ZeRO"),
        (["model.num_experts=2"], "model.num_experts=2 .*each expert in a file of its own"),
        (["parallel.zero=2", "parallel.pipeline=2"], "ZeRO 1 only"),
        (["parallel.tensor=3"], "cannot be divided equally among 3 ranks"),
        (["checkpoint=torch_save", "checkpoint.restore_part=model", "model=none"], "restore_part"),
    ],
)
def test_jobs_that_it_cannot_save(options: list[str], line: str) -> None:
    sizes = ["hidden_size", "num_layers", "num_heads", "ffn_hidden_size", "vocab_size"]
    model = [f"model.{name}={getattr(SMALL, name)}" for name in sizes] if options else []
    layout = ["checkpoint.layout=megatron_deepspeed", "checkpoint.every_steps=1"]
    if "model=none" in options:
        options, model, layout = options[:-1], [], []
    with pytest.raises(ConfigError, match=line) as caught:
        compose(["recipe=minimal", *layout, *model, *options])
    assert caught.value.exit_code == 2
    assert "\n" not in str(caught.value)


# --- system calls -----------------------------------------------------------------------------------

OURS = """
import sys
from pathlib import Path
from checkpointers import job_checkpointers, restore_problem, saved_names
from tests.unit.checkpoint.test_megatron_deepspeed import job
[rank] = job_checkpointers(job(zero=3), Path(sys.argv[1]), 1)
rank.save(1)
"""
PLAIN = """
import sys, os, torch
folder = sys.argv[1] + "/global_step1"
os.makedirs(folder)
for kind in ("zero_pp_rank_0_mp_rank_00_model", "bf16_zero_pp_rank_0_mp_rank_00_optim"):
    content = torch.load(f"{sys.argv[2]}/global_step1/{kind}_states.pt", weights_only=True)
    torch.save(content, f"{folder}/{kind}_states.pt")
with open(sys.argv[1] + "/latest", "w") as file:
    file.write("global_step1")
"""


def writes(program: str, folder: Path, *arguments: str) -> list[tuple[str, str, str]]:
    """Calls that open files for writing in a folder or write to them: name, file, flags or bytes."""
    log = folder.parent / f"{folder.name}.strace"
    command = ["strace", "-f", "--seccomp-bpf", "-y", "-s", "0", "-o", str(log)]
    command += ["-e", "trace=openat,write,writev,pwrite64,fsync,fdatasync,rename,renameat,unlink,lseek"]
    root = Path(__file__).parents[3]
    environment = os.environ | {"OMP_NUM_THREADS": "1", "PYTHONPATH": f"{root}:{root}/tests/support"}
    subprocess.run([*command, sys.executable, "-c", program, str(folder), *arguments], check=True, env=environment)
    calls = []
    for line in log.read_text(errors="replace").splitlines():
        match = re.match(r"\d+\s+(\w+)\((.*)", line)
        if match and f"{folder}/" in line:
            name = re.search(rf"{re.escape(str(folder))}/([\w./]+)", line)
            detail = re.search(r"O_\w+(\|O_\w+)*", line) if match[1] == "openat" else re.search(r"= (\d+)", line)
            assert name is not None
            calls.append((match[1], name[1], detail[0] if detail else ""))
    return calls


@needs_strace
def test_system_calls_are_those_of_plain_torch_save(tmp_path: Path) -> None:
    ours = writes(OURS, tmp_path / "ours")
    plain = writes(PLAIN, tmp_path / "plain", str(tmp_path / "ours"))
    assert len([call for call in ours if call[0] == "openat"]) == 3
    assert ours == plain


@pytest.mark.parametrize("layout", ["megatron_deepspeed", "dcp", "safetensors", "torch_save"])
def test_the_model_alone_is_read_in_each_layout_of_a_described_model(layout: str) -> None:
    sizes = ["hidden_size", "num_layers", "num_heads", "ffn_hidden_size", "vocab_size"]
    model = [f"model.{name}={getattr(SMALL, name)}" for name in sizes]
    options = [f"checkpoint.layout={layout}", "checkpoint.every_steps=1", "checkpoint.restore_part=model"]
    assert compose(["recipe=minimal", *model, *options]).config.checkpoint.restore_part == "model"
