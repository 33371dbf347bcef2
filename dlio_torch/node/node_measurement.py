"""Measurement of a node: data, limits alone, limits at the same time, and the throughput of the combinations."""

from __future__ import annotations

import os
import statistics
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import asdict
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from dlio_torch.environment.machine import describe
from dlio_torch.errors import RunFailed
from dlio_torch.node.combinations import Combination, label, with_settings
from dlio_torch.node.limits.measurement import measure_limits, measure_together
from dlio_torch.node.node_directory import SCHEMA_VERSION, NodeDirectory
from dlio_torch.node.node_plan import THROUGHPUT_PART, NodePlan
from dlio_torch.node.node_verdict import first_limit, verdict_of
from dlio_torch.node.request_rate import measure_requests
from dlio_torch.node.run_length import RunLength
from dlio_torch.study.model import Trial
from dlio_torch.study.runner import figures_text
from dlio_torch.study.strategies.grid import shuffled
from dlio_torch.study.trial import generate_data, run_trial
from dlio_torch.study.warm_start import WarmStart
from dlio_torch.units import counted

Say = Callable[[str], None]
"""Prints one line of progress."""

NO_TIME = "the time for all combinations was used up (--seconds sets it)"
_LEAST_S = 30.0  # for all runs, however short a measurement is: starting processes takes its time
_REQUESTS_S = 0.5  # length of the two measurements of small requests, at most
_TIMEOUT_S = 600.0
_WHOLE_RUN = ("train.samples", "train.steps", "epochs.0.0.seconds")
_CLOSE = 0.9


def measure_node(plan: NodePlan, directory: NodeDirectory, say: Say) -> dict[str, Any]:
    """Measure everything, and write ``node.json``; returns its content.

    Args:
        plan: the plan.
        directory: an empty directory for the results.
        say: prints one line of progress.

    Raises:
        DlioError: the data cannot be generated, or no combination runs.
    """
    began, started = time.monotonic(), datetime.now(UTC).isoformat(timespec="seconds")
    load_before = os.getloadavg()[0]
    _generate(plan, directory, say)
    folder = data_folder_of(plan)
    seconds, count = plan.request.seconds, plan.demand.accelerators
    say("limits: each alone")
    alone = measure_limits(plan.config, folder=folder, seconds=seconds, note=say, accelerators=count)
    combined = measure_together(plan.config, folder=folder, seconds=seconds, note=say, accelerators=count)
    requests = measure_requests(folder, min(seconds, _REQUESTS_S))
    length = plan.length(first_limit(alone))
    trials = list(_trials(plan, directory, length, say))
    record = {
        "schema_version": SCHEMA_VERSION,
        "recipe": plan.config.recipe,
        "accelerator": plan.config.accelerator,
        "scale": plan.config.scale.name,
        "settings": list(plan.settings),
        "data": {"folder": str(folder), "samples": plan.samples, "steps": plan.steps},
        "measured_at": started,
        "seconds": seconds,
        "elapsed_s": time.monotonic() - began,
        "runs": asdict(length),
        "load": {"before": load_before, "after": os.getloadavg()[0]},
        "verdict": verdict_of(plan.demand, alone, combined, plan.config.recipe).to_record(),
        "demand": plan.demand.to_record(),
        "limits": [limit.to_dict() for limit in alone],
        "limits_together": [limit.to_dict() for limit in combined],
        "storage_requests": requests.to_record(),
        "combinations": [combination_record(item, trials, length) for item in plan.combinations],
        "left_out": list(plan.notes),
        "topology": plan.topology.to_record(),
        "environment": describe({"data": folder, "runs": directory.path}),
    }
    directory.save(record)
    if all(trial.failed for trial in trials):
        raise RunFailed(f"no combination could be run: {trials[-1].error}", hint=f"see the logs in {directory.path}")
    return record


def data_folder_of(plan: NodePlan) -> Path:
    """An existing folder on the storage of the data, for test files of the measurements."""
    dataset = plan.config.dataset
    path = Path(dataset.path) if dataset.path is not None else Path(dataset.root)
    folder = path if path.is_dir() else path.parent
    return folder if folder.is_dir() else Path.cwd()


def combination_record(combination: Combination, trials: Iterable[Trial], length: RunLength) -> dict[str, Any]:
    """The runs of one combination as JSON-ready values; ``None``: not measured, for the reason under ``why``."""
    point = combination.point
    local = [trial for trial in trials if trial.point == point.number]
    done = [trial for trial in local if not trial.failed]
    rates = [rate for trial in done if (rate := trial.figures.get("train.samples_per_s")) is not None]
    shares = [share for trial in done if (share := trial.figures.get("au.mean")) is not None]
    why = "" if rates else next((trial.error for trial in local if trial.error), NO_TIME)
    if any(not is_steady(trial, combination.batches_ahead, length) for trial in done):
        why = _too_short(combination, length)
    return {
        "point": point.number,
        **dict(point.values),
        "samples_per_s": None if why else statistics.median(rates),
        "runs_samples_per_s": rates,
        "au": statistics.median(shares) if shares and not why else None,
        "settings": list(local[-1].settings if local else point.settings),
        "why": why,
    }


def _too_short(combination: Combination, length: RunLength) -> str:
    """Reason why the runs of a combination give no rate: their length, and the option that makes them longer."""
    ahead, measured = combination.batches_ahead, length.steps - length.warmup
    steps = f"{counted(measured, 'measured step')} may have used only batches that were read before"
    remedy = "longer runs (--seconds)" if combination.steps > length.steps else "more data (dataset.num_files)"
    return f"the loader reads {counted(ahead, 'batch', 'batches')} ahead, so that {steps}; use {remedy}"


def is_steady(trial: Trial, batches_ahead: int, length: RunLength) -> bool:
    """Whether the rate of a run is not that of batches which were read before its measured steps.

    It is steady with more measured steps than the loader reads batches ahead.  With fewer, the rate of the whole run,
    its start and warm-up among it, is a lower bound, and has to be close.

    Args:
        trial: a finished run.
        batches_ahead: batches that the loader reads ahead.
        length: of the run.
    """
    if length.steps - length.warmup > batches_ahead:
        return True
    rate, samples, steps, seconds = (trial.figures.get(name) for name in ("train.samples_per_s", *_WHOLE_RUN))
    if not (rate and samples and steps and seconds):
        return False
    return samples / steps * length.steps / seconds >= _CLOSE * rate


def _generate(plan: NodePlan, directory: NodeDirectory, say: Say) -> None:
    """Generate the data that are missing.

    Raises:
        RunFailed: they cannot be written.
    """
    by_number = {point.number: point for point in plan.points}
    for data in plan.needs.data:
        if not data.missing_files:
            continue
        say(data.progress_line)
        ended = generate_data(by_number[data.makers[0]].settings, directory.data_log)
        if ended.exit_code:
            raise RunFailed(f"the data cannot be written: {ended.error}", hint=f"see the log {directory.data_log}")


def _trials(plan: NodePlan, directory: NodeDirectory, length: RunLength, say: Say) -> Iterator[Trial]:
    """Run each combination as often as planned, in rounds of all; each round has another order.

    No run starts once the time of all is used up.
    """
    rounds = [(repeat, point) for repeat in range(1, length.repeats + 1) for point in shuffled(plan.points, repeat)]
    say(f"throughput: {counted(len(rounds), 'run')} of {counted(length.steps, 'step')}")
    end = time.monotonic() + THROUGHPUT_PART * plan.request.seconds + _LEAST_S
    with WarmStart() as warm:
        for number, (repeat, point) in enumerate(rounds, 1):
            if time.monotonic() > end:
                say(f"{counted(len(rounds) - number + 1, 'run')} left out: {NO_TIME}")
                return
            run = with_settings(point, length.settings)
            trial = run_trial(
                run, directory.trial(point.number, repeat), repeat=repeat, warm=None if run.fresh else warm,
                timeout_s=_TIMEOUT_S, figures=_WHOLE_RUN,
            )  # fmt: skip
            outcome = f"failed: {trial.error}" if trial.failed else figures_text(trial)
            say(f"[{number}/{len(rounds)}] {label(point.values)}: {outcome}")
            yield trial
