"""Runs on GPUs with several ranks: over Gloo where they share one, over NCCL where each has one."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from figure_checks import check_figures
from ranks import run_ranks

from dlio_torch.run_directory.run_dir import RunDir

GPUS = torch.cuda.device_count() if torch.cuda.is_available() else 0
OPTIONS = (
    *("recipe=minimal", "scale=paper", "dataset.samples_per_file=8", "dataset.fields.0.shape=[8,8]", "train.epochs=2"),
    *("compute.mode=cuda", "compute.step_s=2ms", "train.device=cuda", "train.allreduce_bytes=64KiB", "verify=true"),
    *("loader.pin_memory=true", "output.dir=run"),
)


def summary_of(folder: Path, *options: str, gpus: str) -> dict[str, Any]:
    """The summary of a run of two ranks that see these GPUs."""
    arguments = ["-m", "dlio_torch", *OPTIONS, *options]
    ended = run_ranks("torch", 2, arguments, cwd=folder, env={"CUDA_VISIBLE_DEVICES": gpus}, timeout_s=180)
    assert [rank.exit_code for rank in ended] == [0, 0], "".join(rank.stderr for rank in ended)
    directory = RunDir(folder / "run")
    assert directory.missing() == ()
    summary: dict[str, Any] = directory.read_json(directory.summary)
    check_figures(summary)
    return summary


@pytest.mark.ranks
@pytest.mark.skipif(GPUS < 1, reason="needs a GPU")
@pytest.mark.parametrize("depth", [0, 2])
def test_two_ranks_share_a_gpu_and_reduce_over_gloo(tmp_path: Path, depth: int) -> None:
    summary = summary_of(tmp_path, f"loader.prefetch_to_device={depth}", gpus="0")
    assert summary["ranks_by"]["detail"] == "gloo"
    assert summary["gpu"] == torch.cuda.get_device_name(0)
    assert [row["allreduce_s"] > 0 for row in summary["ranks"]] == [True, True]
    assert (summary["copies"] is None, summary["copies_ahead"] is None) == (depth > 0, depth == 0)
    if depth:
        assert summary["copies_ahead"]["batches"] == 2 * (summary["train"]["steps"] + summary["warmup"]["steps"])


@pytest.mark.ranks
@pytest.mark.skipif(GPUS < 2, reason="needs two GPUs")
@pytest.mark.parametrize("depth", [0, 2])
def test_two_ranks_with_a_gpu_each_reduce_over_nccl(tmp_path: Path, depth: int) -> None:
    summary = summary_of(tmp_path, f"loader.prefetch_to_device={depth}", gpus="0,1")
    assert summary["ranks_by"]["detail"] == "nccl"
    assert [row["allreduce_s"] > 0 for row in summary["ranks"]] == [True, True]
    assert (summary["copies"] is None, summary["copies_ahead"] is None) == (depth > 0, depth == 0)
