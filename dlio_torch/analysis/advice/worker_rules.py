"""Rules on worker processes that cost more than they gain."""

from __future__ import annotations

from collections.abc import Iterator

from dlio_torch.analysis.advice.advice_item import Advice, Predicted, Value
from dlio_torch.analysis.advice.choice import Choice, Finding, also, best, unusable, worth
from dlio_torch.analysis.advice.evidence import LEAST, Evidence
from dlio_torch.analysis.advice.loader_model import LoaderModel, LoaderOutcome
from dlio_torch.analysis.advice.loader_replay import LoaderSetup
from dlio_torch.analysis.advice.model_figures import confidence, cores, of_machine, of_model
from dlio_torch.analysis.advice.value_text import outlook
from dlio_torch.units import format_duration, percent

CROWDED = 0.25
"""Share of the producers' time in the run queue above which fewer producers suffice."""
LONGER = 1.05
"""Ratio of step times above which steps count as longer."""
HANDED = 0.3
"""Share of the waits above which the transfer of batches is judged."""


def fewer_workers(evidence: Evidence) -> Iterator[Finding]:
    """Rule on more workers than cores."""
    model = evidence.model
    if model is None or model.setup.by != "workers" or model.starved is None or model.starved < CROWDED:
        return
    now, most = model.setup.producers, max(1, model.most_producers())
    if model.cores is None or now <= most:
        return
    if model.taken_by_others:
        # The kernel shares cores out by threads: fewer workers would get less of them.
        yield "fewer workers: other programs, or the transfer of batches, used some of the cores"
        return
    outcome = with_workers(model, most)
    measured, within_steps = model.measured.step_s, 1 - (evidence.number("shares.between_epochs") or 0.0)
    predicted = Predicted(
        figure="step.duration_s.mean",
        now=measured,
        low=min(outcome.step_s, measured),
        high=measured,
        gain_low=0.0,
        gain_high=max(0.0, 1 - max(outcome.step_s, model.modelled.step_s) / measured) * within_steps,
        assumption="no other program on the machine uses the cores",
    )
    yield Advice(
        "fewer_workers",
        "loader.num_workers",
        str(most),
        f"{now} workers waited for a CPU core {percent(model.starved)} of the time in which they produced batches "
        f"({cores(evidence, model)}); with loader.num_workers={most}, steps are predicted to be no slower",
        (("making.run_delay_share", model.starved), ("loader.num_workers", now), *of_machine(evidence, model)),
        predicted,
        "medium",
    )


def with_workers(model: LoaderModel, count: int) -> LoaderOutcome:
    """Predicts the run with fewer workers, each with the same prefetch depth."""
    now = model.setup
    return model.outcome(LoaderSetup("workers", count, now.depth // now.producers * count))


def hand_over(evidence: Evidence) -> Iterator[Finding]:
    """Rule on batches whose transfer from workers costs more than production in the trainer's process."""
    model, share = evidence.model, evidence.part("hand_over")
    if evidence.waits < LEAST or share is None or evidence.config.loader.num_workers == 0:
        return
    if share < HANDED and (model is None or not model.limited_by_transfer):
        return
    why = unusable(evidence, fewer_cores=True)
    if model is None or why:
        yield f"no worker processes, to avoid the transfer of batches: {why}"
        return
    off: dict[str, Value] = {
        "loader.num_workers": 0, "loader.prefetch_factor": None,
        "loader.persistent_workers": False, "loader.multiprocessing_context": None,
    }  # fmt: skip
    choices: list[Choice] = [
        (LoaderSetup("trainer"), off),
        (LoaderSetup("threads", 1, 2), {**off, "loader.read_threads": 1, "loader.prefetch_batches": 2}),
    ]
    chosen = best(evidence, model, choices)
    assert chosen is not None
    setup, settings = chosen
    predicted = evidence.forecast(
        setup,
        sure=False,
        assumption=(
            "producing a batch takes as long in the trainer's process as in a worker, and compute as long as in "
            "this run"
        ),
    )
    if not worth(evidence, setup, predicted):
        yield "no worker processes, to avoid the transfer of batches: the predicted gain is too small"
        return
    thread = "in the trainer itself" if setup.by == "trainer" else "in a thread of the trainer's process"
    production = model.mean("production") or 0.0
    yield Advice(
        "hand_over",
        "loader.num_workers",
        "0",
        f"the transfer of a batch from a worker takes {format_duration(model.transfer_s)} ({percent(share)} of the "
        f"waits), its production {format_duration(production)}; production {thread} {outlook(predicted)}",
        (
            ("shares.fetch", evidence.waits),
            ("stalls.shares.hand_over", share),
            ("hand_over.seconds_per_batch", model.transfer_s),
            ("batch.bytes", evidence.batch_bytes),
            *of_model(model),
        ),
        predicted,
        confidence(model, predicted),
        also(evidence, settings, "loader.num_workers"),
    )
