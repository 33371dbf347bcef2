"""Evaluations of recorded trainings: how often, how long, and on how many samples."""

from __future__ import annotations

from hand_made_trainings import NO_FILES, TrainingTimes

from dlio_torch.fit.evaluation_steps import fit_evaluation
from dlio_torch.fit.finding import Findings


def options(result: Findings) -> dict[str, object]:
    return {value.key: value.value for value in result.values}


def test_evaluations_after_epochs() -> None:
    times = TrainingTimes()
    for _ in range(2):
        times.epoch(6)
        times.epoch(2, loader=1, step_ms=3)
    result = options(fit_evaluation(times.training(evaluation=True, length=8), NO_FILES))
    assert result == {
        "train.eval_every_epochs": 1,
        "compute.eval_step_s": 0.003,
        "dataset.num_files_eval": 8,
        "dataset.samples_per_file_eval": 1,
    }


def test_evaluations_of_a_few_batches_after_steps() -> None:
    times = TrainingTimes()
    for step in range(6):
        times.step(step)
        if step % 3 == 2:
            times.epoch(2, loader=1, exhausted=False)
    times.end_epoch(6, exhausted=True)
    result = options(fit_evaluation(times.training(evaluation=True), NO_FILES))
    assert (result["train.eval_every_steps"], result["train.eval_steps"]) == (3, 2)


def test_an_evaluation_before_the_first_step_is_a_gap() -> None:
    times = TrainingTimes()
    times.epoch(1, loader=1)
    times.epoch(6)
    times.epoch(1, loader=1)
    result = fit_evaluation(times.training(evaluation=True), NO_FILES)
    assert options(result)["train.eval_every_epochs"] == 1
    assert "an evaluation before the first step" in result.gaps


def test_a_training_without_evaluation() -> None:
    times = TrainingTimes()
    times.epoch(6)
    assert fit_evaluation(times.training(), NO_FILES) == Findings()
