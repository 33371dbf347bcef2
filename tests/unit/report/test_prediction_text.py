"""Tables of the verb ``predict``: every column and every figure, on a narrow terminal too."""

from __future__ import annotations

import io
from dataclasses import replace

import pytest

from dlio_torch.prediction.predicted_saves import PredictedSave
from dlio_torch.prediction.project import Row
from dlio_torch.report.prediction_text import print_prediction

SAVE = PredictedSave(8, 96e9, 12e9, plan_s=0.125, gather_s=0.25, write_s=4.0, fsync_s=0.5, stall_s=1.5)
ROW = Row(
    ranks=1024, nodes=256, samples_per_s=20540.0, ideal_share=0.37, step_s=0.2, io_share=0.892, compute_share=0.1,
    reduce_share=0.0, au=0.101, begin_s=0.17, epoch_s=63.5, checkpoint_s=1.5, checkpoint=SAVE,
    limited_by="production of batches", busy={}, batches=512,
)  # fmt: skip


def printed(columns: int, monkeypatch: pytest.MonkeyPatch, save: PredictedSave = SAVE) -> list[str]:
    monkeypatch.setenv("COLUMNS", str(columns))
    stream = io.StringIO()
    print_prediction("minimal on theta", [replace(ROW, checkpoint=save)], {}, stream)
    return stream.getvalue().splitlines()


def test_a_row_has_a_figure_below_each_head(monkeypatch: pytest.MonkeyPatch) -> None:
    lines = printed(100, monkeypatch)
    figures, save = [" ".join(line.split()) for line in lines if line.split()[:1] == ["1024"]]
    assert figures == "1024 256 20540 37 % 89.2 % 10.1 % 170 ms 1 min 4 s production of batches"
    assert save == "1024 8 89.4 GiB 11.2 GiB 125 ms 250 ms 4 s 500 ms 4.88 s 1.50 s"
    heads = [" ".join(line.split()) for line in lines]
    assert "ranks nodes per s of ideal wait AU begin epoch limited by" in heads
    assert "ranks saving bytes rank plan gather write fsync in all stall" in heads


def test_the_stall_is_left_out_where_training_waits_for_the_save(monkeypatch: pytest.MonkeyPatch) -> None:
    assert "stall" not in " ".join(printed(100, monkeypatch, replace(SAVE, stall_s=None)))


@pytest.mark.parametrize("columns", [80, 100])
def test_nothing_is_cut(columns: int, monkeypatch: pytest.MonkeyPatch) -> None:
    lines = printed(columns, monkeypatch)
    assert max(map(len, lines)) <= columns
    words = " ".join(lines).split()
    assert "…" not in " ".join(words)
    assert {"20540", "89.2", "production", "batches", "4.88", "1.50", "stall"} <= set(words)
