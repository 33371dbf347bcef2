"""Checkpoints of recorded trainings: when they are saved, their content, and which are kept."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from hand_made_trainings import NO_FILES, TrainingTimes

from dlio_torch.fit.checkpoints import fit_checkpoints
from dlio_torch.fit.finding import Findings
from dlio_torch.iotrace.events.state_item import StateItem

STATE = (StateItem("model.weight", (8, 4), "float32", 2), StateItem("lr", (12,), "object", 1))


def fitted(times: TrainingTimes) -> Findings:
    return fit_checkpoints(times.training(), NO_FILES)


def options(result: Findings) -> dict[str, object]:
    return {value.key.removeprefix("checkpoint."): value.value for value in result.values}


def saved_every(steps: int, total: int) -> TrainingTimes:
    times = TrainingTimes()
    for step in range(1, total + 1):
        times.step(step - 1)
        if step % steps == 0:
            times.save(f"/out/{step}.pt", state=STATE)
    times.end_epoch(total, exhausted=True)
    return times


def saved_after_epochs() -> TrainingTimes:
    times = TrainingTimes()
    for epoch in range(4):
        times.epoch(5)
        if epoch % 2:
            times.save(f"/out/{epoch}.pt", state=STATE)
    return times


def saved_at_the_end() -> TrainingTimes:
    times = TrainingTimes()
    for batch in range(5):
        times.step(batch)
    times.end_epoch(5, exhausted=False)
    times.save("/out/last.pt", state=STATE)
    return times


def saved_before_and_regularly() -> TrainingTimes:
    times = TrainingTimes()
    times.save("/out/0.pt", state=STATE)
    for step in range(1, 6):
        times.step(step - 1)
        if step in (2, 4, 5):
            times.save(f"/out/{step}.pt", state=STATE)
    times.end_epoch(5, exhausted=False)
    return times


@pytest.mark.parametrize(
    ("made", "expected"),
    [
        (lambda: saved_every(3, 10), {"every_steps": 3}),
        (saved_after_epochs, {"every_epochs": 2}),
        (saved_at_the_end, {"after_last": True}),
        (saved_before_and_regularly, {"before_first": True, "every_steps": 2, "after_last": True}),
    ],
)
def test_the_interval_follows_from_the_places_of_the_saves(
    made: Callable[[], TrainingTimes], expected: dict[str, object]
) -> None:
    result = options(fitted(made()))
    chosen = ("every_steps", "every_epochs", "after_last", "before_first")
    assert {key: value for key, value in result.items() if key in chosen} == expected
    assert result["layout"] == "torch_save"
    assert result["tensors"] == [
        {"name": "model.weight", "shape": [8, 4], "dtype": "float32", "count": 2},
        {"name": "lr", "shape": [12], "dtype": "object"},
    ]


def test_deleted_flushed_and_renamed_files_are_seen() -> None:
    times = TrainingTimes()
    for step in range(1, 5):
        times.step(step - 1)
        times.save(f"/out/{step}.tmp", state=STATE)
        times.call("fsync", f"/out/{step}.tmp")
        times.call("rename", f"/out/{step}.tmp")
        if step > 2:
            times.call("unlink", f"/out/{step - 2}.tmp")
    times.end_epoch(4, exhausted=True)
    result = fitted(times)
    assert {key: options(result)[key] for key in ("keep", "fsync", "rename")} == {
        "keep": 2,
        "fsync": True,
        "rename": True,
    }
    assert result.files == {f"/out/{step}.tmp" for step in range(1, 5)}


def test_replaced_files_have_one_name() -> None:
    times = TrainingTimes()
    for step in range(3):
        times.step(step)
        times.save("/out/last.pt", state=STATE)
    times.end_epoch(3, exhausted=True)
    result = options(fitted(times))
    assert (result["keep"], result["file_name"], result["rename"]) == (1, "checkpoint.pt", False)


def test_several_files_of_a_checkpoint_have_sizes_of_their_own() -> None:
    times = TrainingTimes()
    for step in range(4):
        times.step(step)
        if step % 2:
            times.save(f"/out/model_{step}.pt", state=STATE, sizes=[90_000])
            times.save("/out/last.pt", state=STATE, sizes=[40_000, 40_000])
            times.call("unlink", f"/out/model_{step - 2}.pt")
    times.end_epoch(4, exhausted=True)
    result = options(fitted(times))
    assert (result["layout"], result["every_steps"], result["keep"]) == ("files", 2, 1)
    assert result["files"] == [
        {"name": "{step}-0.pt", "bytes": 90_000, "write_bytes": 90_000},
        {"name": "checkpoint-1.pt", "bytes": 80_000, "write_bytes": 40_000},
    ]


def test_dcp_in_the_background_with_several_files() -> None:
    times = TrainingTimes()
    times.step(0)
    times.save("/out/step_1", "dcp.async_save", state=STATE)
    times.write("/out/step_1/__0_1.distcp", [10])
    times.step(1)
    times.end_epoch(2, exhausted=True)
    result = options(fitted(times))
    assert (result["layout"], result["async_save"], result["thread_count"]) == ("dcp", "thread", 2)
    assert result["sync_files"] is False


def test_a_state_of_unknown_tensors_has_a_size() -> None:
    times = TrainingTimes()
    times.step(0)
    times.save("/out/1.pt", sizes=[60_000, 40_000])
    times.end_epoch(1, exhausted=True)
    assert options(fitted(times))["state_bytes"] == 100_000


def test_files_written_without_torch_have_sizes_and_calls() -> None:
    times = TrainingTimes()
    for step in range(4):
        times.step(step)
        times.call("write", "/out/log.txt", 20)
        if step % 2:
            times.write(f"/out/weights_{step}.npy", [128, 65_536, 65_536])
            times.write(f"/out/moments_{step}.npy", [80_000])
    times.end_epoch(4, exhausted=True)
    result = options(fitted(times))
    assert (result["layout"], result["every_steps"], result["rename"]) == ("files", 2, False)
    assert result["files"] == [
        {"name": "{step}-0.npy", "bytes": 131_200, "write_bytes": 65_536},
        {"name": "{step}-1.npy", "bytes": 80_000, "write_bytes": 80_000},
    ]


def test_a_load_before_the_first_batch_is_a_restore() -> None:
    times = TrainingTimes()
    times.load("/out/old.pt", state=STATE)
    times.step(0)
    times.save("/out/1.pt", state=STATE)
    times.end_epoch(1, exhausted=True)
    result = fitted(times)
    assert options(result)["restore"] is True
    assert result.files == {"/out/old.pt", "/out/1.pt"}


def test_a_training_that_saves_nothing_has_no_checkpoints() -> None:
    times = TrainingTimes()
    times.epoch(4)
    assert fitted(times) == Findings()


def test_at_most_64_entries_hold_the_bytes_of_all_tensors() -> None:
    times = TrainingTimes()
    times.step(0)
    times.save("/out/1.pt", state=tuple(StateItem(str(size), (size,), "float32", 1) for size in range(1, 201)))
    times.end_epoch(1, exhausted=True)
    tensors = options(fitted(times))["tensors"]
    assert isinstance(tensors, list)
    assert len(tensors) == 64
    counted = [(entry["shape"][0], entry.get("count", 1)) for entry in tensors]
    assert sum(count for _, count in counted) == 200
    assert sum(size * count for size, count in counted) == pytest.approx(sum(range(1, 201)), rel=0.01)
