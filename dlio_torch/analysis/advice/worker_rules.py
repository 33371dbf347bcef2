"""Rules on worker processes whose cost exceeds their gain."""

from __future__ import annotations

from collections.abc import Iterator

from dlio_torch.analysis.advice.advice_item import Advice, Predicted, Value
from dlio_torch.analysis.advice.choice import Choice, Finding, also, best, unusable, worth
from dlio_torch.analysis.advice.evidence import LEAST, Evidence
from dlio_torch.analysis.advice.loader_model import LoaderModel, LoaderOutcome
from dlio_torch.analysis.advice.loader_replay import LoaderSetup
from dlio_torch.analysis.advice.model_figures import confidence, cores, of_machine, of_model
from dlio_torch.analysis.advice.value_text import outlook, percent
from dlio_torch.units import format_duration

CROWDED = 0.25
"""Share of the producers' time in the run queue from which fewer producers suffice."""
LONGER = 1.05
"""Factor from which steps count as longer."""
HANDED = 0.3
"""Share of the waits from which the transfer is judged."""


def fewer_workers(evidence: Evidence) -> Iterator[Finding]:
    """More workers than cores."""
    model = evidence.model
    if model is None or model.setup.by != "workers" or model.starved is None or model.starved < CROWDED:
        return
    now, most = model.setup.producers, max(1, model.most_producers())
    if model.cores is None or now <= most:
        return
    if model.taken_by_others:
        # The kernel shares cores out by threads: fewer workers would get less of them.
        yield "fewer workers: other programs, or the transfer of batches, had some of the cores"
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
        assumption="nothing else on the machine takes the cores",
    )
    yield Advice(
        "fewer_workers",
        "loader.num_workers",
        str(most),
        f"{now} workers waited for a core {percent(model.starved)} of the time in which they made batches "
        f"({cores(evidence, model)}); loader.num_workers={most} is predicted to be no slower",
        (("making.run_delay_share", model.starved), ("loader.num_workers", now), *of_machine(evidence, model)),
        predicted,
        "medium",
    )


def with_workers(model: LoaderModel, count: int) -> LoaderOutcome:
    """The run with fewer workers, each with the same prefetch depth."""
    now = model.setup
    return model.outcome(LoaderSetup("workers", count, now.depth // now.producers * count))


def hand_over(evidence: Evidence) -> Iterator[Finding]:
    """The transfer of batches from workers costs more than production in the trainer."""
    model, share = evidence.model, evidence.part("hand_over")
    if evidence.waits < LEAST or share is None or evidence.config.loader.num_workers == 0:
        return
    if share < HANDED and (model is None or not model.limited_by_transfer):
        return
    why = unusable(evidence, fewer_cores=True)
    if model is None or why:
        yield f"fewer transfers: {why}"
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
        assumption="making a batch takes as long in the trainer's process as in a worker, and compute as long as now",
    )
    if not worth(evidence, setup, predicted):
        yield "fewer transfers: the model predicts no gain worth having"
        return
    thread = "in the trainer itself" if setup.by == "trainer" else "in a thread of the trainer's process"
    production = model.mean("production") or 0.0
    yield Advice(
        "hand_over",
        "loader.num_workers",
        "0",
        f"handing a batch over from a worker takes {format_duration(model.transfer_s)} ({percent(share)} of the "
        f"waits) and making it {format_duration(production)}; making it {thread} {outlook(predicted)}",
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
