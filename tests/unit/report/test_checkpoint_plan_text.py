"""Lines of a dry run on one checkpoint of the whole described job."""

from __future__ import annotations

from dataclasses import replace

import pytest

from dlio_torch import cli
from dlio_torch.checkpoint.layouts.dcp.layout import DcpLayout
from dlio_torch.checkpoint.registry import layout_of
from dlio_torch.checkpoint.saves import held_bytes, total_bytes
from dlio_torch.config.schema import CheckpointConfig, Config
from dlio_torch.config.schema_model import ModelConfig, ParallelConfig
from dlio_torch.report.checkpoint_plan_text import checkpoint_plan_lines
from dlio_torch.units import format_size

MODEL = ModelConfig(hidden_size=64, num_layers=6, num_heads=4, ffn_hidden_size=160, vocab_size=512, master_weights=True)
FULL = ParallelConfig(data=4, fsdp="full")
STAGES = ParallelConfig(tensor=2, pipeline=4, data=2, zero=1)


def config(layout: str, parallel: ParallelConfig, **options: object) -> Config:
    saved = replace(CheckpointConfig(), layout=layout, **options)  # type: ignore[arg-type]
    return replace(Config(), model=MODEL, parallel=parallel, checkpoint=saved)


def lines(layout: str, parallel: ParallelConfig, **options: object) -> list[str]:
    return list(checkpoint_plan_lines(config(layout, parallel, **options), 1 << 30))


def test_ranks_with_equal_files_are_one_line() -> None:
    text = lines("dcp", FULL)
    assert text[0].startswith("checkpoint of the job: 4 ranks, 5 files, ")
    assert text[1].startswith("  1 rank: 1 file of ")  # and the metadata
    assert text[1].count("1 file of") == 2
    assert text[2].startswith("  3 ranks: 1 file of ")
    assert "measured here for all ranks: " in text[3]
    assert not any("estimated" in line for line in text)


def test_fewer_planned_ranks_are_said_and_scaled_figures_are_estimates() -> None:
    text = lines("dcp", FULL, planned_ranks=2)
    assert text[0].endswith(" of tensors, without headers")
    assert text[1].startswith("  4 ranks: 1 file of ")
    assert "measured here for the first 2 ranks: " in text[2]
    assert text[3].startswith("  estimated for 4 ranks, in proportion to their number: ")
    assert text[3].endswith("checkpoint.planned_ranks=4 measures them")
    measured = DcpLayout().plan_cost(config("dcp", FULL, planned_ranks=2))
    assert measured is not None
    assert measured.ranks == 2
    assert f"{format_size(measured.plan_bytes)} of plans to gather" in text[2]
    assert f"{format_size(2 * measured.plan_bytes)} of plans, " in text[3]


def test_files_of_threads_and_of_tensors_are_counted() -> None:
    assert "4 ranks, 9 files, " in lines("dcp", FULL, thread_count=2)[0]
    alone = lines("dcp", FULL, use_collectives=False)
    assert not any("plan" in line for line in alone)


def test_a_copy_of_a_save_in_the_background_needs_memory() -> None:
    size = format_size(DcpLayout().held_bytes(config("dcp", FULL), 0))
    assert f"checkpoint memory: up to {size} of state per rank" in lines("dcp", FULL)
    assert f"checkpoint memory: up to {size} of state and {size} of copies per rank" in lines(
        "dcp", FULL, async_save="thread"
    )


def test_kinds_of_ranks_with_stages() -> None:
    text = lines("megatron_deepspeed", STAGES)
    # 2 x (6 layers + embedding, norm, head) files of the model, and an optimizer file of each rank
    assert text[0].startswith("checkpoint of the job: 16 ranks, 34 files, ")
    counts = [int(line.split()[0]) for line in text if line.startswith("  ")]
    assert sum(counts) == 16
    assert not any("plan" in line for line in text)
    assert f"checkpoint disk space: up to {format_size(1 << 30)} at a time for 16 ranks" in text


def test_the_whole_state_by_torch_save_is_one_file() -> None:
    assert lines("torch_save", FULL)[0].startswith("checkpoint of the job: 4 ranks, 1 file, ")
    assert lines("torch_save", FULL, ranks="all")[0].startswith("checkpoint of the job: 4 ranks, 4 files, ")


def test_layouts_without_a_model_have_no_such_lines() -> None:
    assert lines("none", FULL) == []
    assert lines("torch_save", FULL, state_bytes=100) == []


def test_bytes_of_all_ranks_are_those_of_each() -> None:
    for layout, parallel in (("dcp", FULL), ("megatron_deepspeed", STAGES), ("torch_save", FULL)):
        settings = config(layout, parallel, ranks="all")
        one = layout_of(layout)
        assert one is not None
        expected = sum(one.saved_bytes(settings, rank) for rank in range(parallel.world_size))
        assert total_bytes(settings, parallel.world_size) == expected
        assert expected == sum(sum(one.file_sizes(settings, rank)) for rank in range(parallel.world_size))


def test_ranks_of_a_node_hold_their_states_together() -> None:
    settings = config("dcp", FULL)
    each = [DcpLayout().held_bytes(settings, rank) for rank in range(4)]
    assert held_bytes(settings, (2, 3), 4) == each[2] + each[3]
    first = replace(settings, checkpoint=replace(settings.checkpoint, layout="torch_save", state_bytes=100))
    assert held_bytes(first, (0, 1), 2) == 100
    assert held_bytes(first, (1,), 2) == 0


@pytest.mark.parametrize("recipe", ["mlperf_llama3_405b", "mlperf_llama3_1t"])
def test_a_job_too_large_for_small_runs_names_the_command_that_saves(
    recipe: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.main([f"recipe={recipe}", "--dry-run"]) == 0
    (line,) = [line for line in capsys.readouterr().out.splitlines() if line.startswith("checkpoints: ")]
    assert "none is due in 1 epoch of 5 steps with checkpoint.every_steps=100 (scale laptop (published 1))" in line
    assert "python -m dlio_torch checkpoint" in line
