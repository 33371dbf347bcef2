"""Layout safetensors: Hugging Face's files and index, parts of ranks, and whole files made of them."""

from __future__ import annotations

import builtins
import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from checkpointers import job_checkpointers, restore_problem, saved_names
from described_jobs import SMALL

from dlio_torch.checkpoint.job.parameters import parameter_count, parameters
from dlio_torch.checkpoint.layouts.huggingface.huggingface_files import whole_files
from dlio_torch.checkpoint.registry import layout_of
from dlio_torch.config.compose import compose
from dlio_torch.config.schema import CheckpointConfig, Config
from dlio_torch.config.schema_model import ParallelConfig
from dlio_torch.config.validate import check_world
from dlio_torch.errors import ConfigError, MissingPackageError
from dlio_torch.ownership.names import FileNames

safetensors = pytest.importorskip("safetensors.torch")

ONE = CheckpointConfig(layout="safetensors", every_steps=1, fsync=True)
SEVERAL = replace(ONE, shard_bytes=30_000)
PARTS = replace(SEVERAL, ranks="all")
WHOLE = replace(PARTS, consolidate=True, consolidate_threads=2)
JOB = Config(model=SMALL, parallel=ParallelConfig(tensor=2, data=2, fsdp="full"), checkpoint=ONE)
INDEX = "checkpoint-4/model.safetensors.index.json"
needs_strace = pytest.mark.skipif(shutil.which("strace") is None, reason="strace is not installed")


def job(saved: CheckpointConfig, **parallel: Any) -> Config:
    return replace(JOB, checkpoint=saved, parallel=ParallelConfig(**parallel) if parallel else JOB.parallel)


def content(folder: Path) -> dict[str, torch.Tensor]:
    """All tensors of the whole files of a folder."""
    return {
        name: tensor
        for path in folder.glob("model*.safetensors")
        for name, tensor in safetensors.load_file(path).items()
    }


def save(config: Config, folder: Path) -> list[Any]:
    """Saves the checkpoint of step 4 on all ranks; the first rank comes last, because it makes the index."""
    ranks = job_checkpointers(config, folder, config.parallel.world_size)
    for rank in reversed(ranks):
        if rank.saves:
            rank.save(4)
    return ranks


def test_one_file_has_no_index(tmp_path: Path) -> None:
    first, *others = save(JOB, tmp_path)
    assert not any(rank.saves for rank in others)
    assert saved_names(tmp_path) == ["checkpoint-4/model.safetensors"]
    weights = content(tmp_path / "checkpoint-4")
    assert {name: tuple(tensor.shape) for name, tensor in weights.items()} == {
        parameter.name: parameter.shape for parameter in parameters(SMALL)
    }
    assert {tensor.dtype for tensor in weights.values()} == {torch.bfloat16}
    layout = layout_of("safetensors")
    assert layout is not None
    size = (tmp_path / "checkpoint-4" / "model.safetensors").stat().st_size
    assert layout.saved_bytes(JOB, 0) == layout.held_bytes(JOB, 0) == 2 * parameter_count(SMALL) < size
    times = first.restore()
    assert times is not None
    assert times.bytes == first.times[0].bytes == size


def test_several_files_are_those_of_save_pretrained(tmp_path: Path) -> None:
    [first, *_] = save(job(SEVERAL), tmp_path)
    files = whole_files(job(SEVERAL))
    assert len(files) > 2
    expected = [f"checkpoint-4/model-{n:05d}-of-{len(files):05d}.safetensors" for n in range(1, len(files) + 1)]
    assert saved_names(tmp_path) == [*expected, INDEX]
    index = json.loads((tmp_path / INDEX).read_text())
    assert index["metadata"]["total_size"] == 2 * parameter_count(SMALL)
    for name, file in index["weight_map"].items():
        assert name in safetensors.load_file(tmp_path / "checkpoint-4" / file)
    assert first.times[0].bytes == sum(path.stat().st_size for path in (tmp_path / "checkpoint-4").iterdir())
    assert first.restore() is not None
    hub = pytest.importorskip("huggingface_hub", reason="huggingface_hub, whose rule is compared, is not installed")
    split = hub.split_torch_state_dict_into_shards(
        {p.name: torch.empty(p.shape, dtype=torch.bfloat16) for p in parameters(SMALL)},
        filename_pattern="model{suffix}.safetensors",
        max_shard_size=30_000,
    )
    assert split.filename_to_tensors == {Path(file.name).name: list(file.content) for file in files}


@pytest.mark.parametrize(
    "parallel",
    [
        {"tensor": 2, "data": 2, "fsdp": "full"},
        {"tensor": 2, "pipeline": 3, "data": 2, "fsdp": "hybrid", "fsdp_ranks": 1},
        {"data": 3, "fsdp": "full"},
        {"pipeline": 2, "data": 2, "zero": 1},
    ],
)
def test_whole_files_are_made_of_the_parts_of_ranks(parallel: Mapping[str, Any], tmp_path: Path) -> None:
    pytest.importorskip("torch.distributed.checkpoint.hf_storage")
    config = job(WHOLE, **parallel)
    ranks = save(config, tmp_path / "parts")
    save(job(SEVERAL), tmp_path / "whole")
    parts, whole = content(tmp_path / "parts/checkpoint-4"), content(tmp_path / "whole/checkpoint-4")
    assert parts.keys() == whole.keys()
    assert all(torch.equal(parts[name].view(torch.int16), whole[name].view(torch.int16)) for name in whole)
    assert json.loads((tmp_path / "parts" / INDEX).read_text()) == json.loads((tmp_path / "whole" / INDEX).read_text())
    layout = layout_of("safetensors")
    assert layout is not None
    planned = sum(layout.saved_bytes(config, rank) for rank in range(len(ranks)))
    assert planned == 2 * 2 * parameter_count(SMALL)  # the parts stay
    written = sum(rank.written_bytes for rank in ranks)
    assert written == sum(path.stat().st_size for path in (tmp_path / "parts").rglob("*") if path.is_file())
    for rank in ranks:
        assert rank.restore() is not None


def test_parts_of_ranks_are_read_back(tmp_path: Path) -> None:
    pytest.importorskip("torch.distributed.checkpoint.hf_storage")
    ranks = save(job(PARTS), tmp_path)
    count = len(whole_files(job(PARTS)))
    assert all(
        re.fullmatch(rf"checkpoint-4/shard-0000[1-4]-model-\d+-of-{count:05d}.safetensors", n)
        for n in saved_names(tmp_path)
    )
    for rank in ranks:
        times = rank.restore()
        assert times is not None
        assert times.bytes == rank.times[0].bytes > 0
    assert "shard-00001-model-00001" in restore_problem(job(PARTS, data=2, fsdp="full"), tmp_path, 4)


def test_incomplete_damaged_and_other_files_are_refused(tmp_path: Path) -> None:
    save(job(SEVERAL), tmp_path)
    other = replace(job(SEVERAL), seed=2)
    assert "model-00001-of-" in restore_problem(other, tmp_path, 4)
    [_, second, *_] = sorted((tmp_path / "checkpoint-4").glob("*.safetensors"))
    os.truncate(second, second.stat().st_size - 1)
    assert f"{second} is damaged: " in restore_problem(job(SEVERAL), tmp_path, 4)
    second.unlink()
    assert f"{second} cannot be read: No such file" in restore_problem(job(SEVERAL), tmp_path, 4)
    index = tmp_path / INDEX
    index.write_text(index.read_text()[:-10])
    assert "checkpoint-4 is not complete: model.safetensors.index.json is missing or ends early" in restore_problem(
        job(SEVERAL), tmp_path, 4
    )
    assert "model.safetensors cannot be read: No such file" in restore_problem(JOB, tmp_path, 4)


@pytest.mark.parametrize("saved", [ONE, SEVERAL, PARTS, WHOLE], ids=["one", "several", "parts", "whole"])
def test_old_checkpoints_go_and_clean_recognises_the_files(saved: CheckpointConfig, tmp_path: Path) -> None:
    config = job(saved)
    ranks = save(config, tmp_path)
    layout = layout_of("safetensors")
    assert layout is not None
    known = FileNames(layout.file_names(config))
    assert all(known.has_file(tuple(name.split("/"))) for name in saved_names(tmp_path))
    for rank in reversed(ranks):
        if rank.saves:
            rank.due(1, 4, False)
            rank.save(5)
            rank.due(1, 5, False)
    assert [path.name for path in tmp_path.iterdir()] == ["checkpoint-5"]


def test_without_the_package_a_line_says_what_to_install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    real = builtins.__import__

    def refuse(name: str, *args: Any, **kwargs: Any) -> Any:
        if name.partition(".")[0] == "safetensors":
            raise ImportError(name)
        return real(name, *args, **kwargs)

    monkeypatch.delitem(sys.modules, "dlio_torch.checkpoint.layouts.huggingface.saver", raising=False)
    monkeypatch.setattr(builtins, "__import__", refuse)
    with pytest.raises(MissingPackageError, match=r"needs the Python package safetensors.*'dlio-torch\[safetensors\]'"):
        job_checkpointers(JOB, tmp_path, 1)


@pytest.mark.parametrize(
    ("options", "line"),
    [
        (["model.hidden_size=48", "checkpoint.ranks=all", "parallel.zero=3", "parallel.data=2"], "pieces of rows"),
        (["model.hidden_size=48", "checkpoint.consolidate=true"], "ranks=first.*: whole files are made of the parts"),
        ([], "none is described"),
    ],
)
def test_what_it_cannot_save(options: list[str], line: str) -> None:
    sizes = ["num_layers", "num_heads", "ffn_hidden_size", "vocab_size"]
    model = [f"model.{name}={getattr(SMALL, name)}" for name in sizes] if options else []
    with pytest.raises(ConfigError, match=line) as caught:
        compose(["recipe=minimal", "checkpoint.layout=safetensors", "checkpoint.every_steps=1", *model, *options])
    assert caught.value.exit_code == 2
    assert "\n" not in str(caught.value)


def test_whole_files_need_all_ranks() -> None:
    with pytest.raises(ConfigError, match="whole files need the parts of the 4 ranks of the job, but 2 were started"):
        check_world(job(WHOLE), 2)


OURS = """
import sys
from pathlib import Path
from checkpointers import job_checkpointers
from tests.unit.checkpoint.test_safetensors_layout import ONE, job, replace
[rank] = job_checkpointers(job(replace(ONE, fsync=False)), Path(sys.argv[1]), 1)
rank.save(4)
"""
PLAIN = """
import os, sys
from safetensors.torch import load_file, save_file
weights = load_file(sys.argv[2] + "/checkpoint-4/model.safetensors")
weights = {name: tensor.clone() for name, tensor in weights.items()}
os.makedirs(sys.argv[1] + "/checkpoint-4")
save_file(weights, sys.argv[1] + "/checkpoint-4/model.safetensors", {"format": "pt"})
"""


def writes(program: str, folder: Path, *arguments: str) -> list[tuple[str, str]]:
    """Calls that create, size, write or rename the files of a folder: name, and number of bytes or flags."""
    log, root = folder.parent / f"{folder.name}.strace", Path(__file__).parents[3]
    command = ["strace", "-f", "--seccomp-bpf", "-y", "-s", "0", "-o", str(log)]
    command += ["-e", "trace=openat,ftruncate,write,writev,pwrite64,fsync,rename,renameat,renameat2"]
    environment = os.environ | {"OMP_NUM_THREADS": "1", "PYTHONPATH": f"{root}:{root}/tests/support"}
    subprocess.run([*command, sys.executable, "-c", program, str(folder), *arguments], check=True, env=environment)
    calls = []
    for line in log.read_text(errors="replace").splitlines():
        match = re.match(r"\d+\s+(\w+)\((.*)", line)
        if match and f"{folder}/" in line:
            detail = re.search(r"O_\w+(\|O_\w+)*", line) if match[1] == "openat" else re.search(r"= (\d+)", line)
            calls.append((match[1], detail[0] if detail else ""))
    return calls


@needs_strace
def test_system_calls_are_those_of_plain_safetensors(tmp_path: Path) -> None:
    ours = writes(OURS, tmp_path / "ours")
    plain = writes(PLAIN, tmp_path / "plain", str(tmp_path / "ours"))
    assert any(name.startswith("write") for name, _ in ours)
    assert ours == plain
