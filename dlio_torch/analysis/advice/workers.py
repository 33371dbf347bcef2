"""Rules on worker processes that cost more than they bring."""

from __future__ import annotations

from collections.abc import Iterator

from dlio_torch.analysis.advice.choice import Choice, Finding, also, best, unusable, worth
from dlio_torch.analysis.advice.clock import Reading
from dlio_torch.analysis.advice.evidence import LEAST, Advice, Evidence, Predicted, Value
from dlio_torch.analysis.advice.figures import confidence, cores, of_machine, of_model
from dlio_torch.analysis.advice.model import Model, Outcome
from dlio_torch.analysis.advice.text import outlook, percent
from dlio_torch.units import format_duration

CROWDED = 0.25
"""From this share of the makers' time spent in the run queue, fewer makers than there are would do."""
LONGER = 1.05
"""From this factor on steps count as longer."""
HANDED = 0.3
"""From this share of the waits, the hand-over is looked at."""


def fewer_workers(evidence: Evidence) -> Iterator[Finding]:
    """More workers than cores."""
    model = evidence.model
    if model is None or model.reading.by != "workers" or model.starved is None or model.starved < CROWDED:
        return
    now, most = model.reading.makers, max(1, model.most_makers())
    if model.cores is None or now <= most:
        return
    if model.taken_by_others:
        # The kernel shares cores out by threads: fewer workers would get less of them.
        yield "fewer workers: other programs, or the hand-over of batches, had some of the cores"
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


def with_workers(model: Model, count: int) -> Outcome:
    """A run of workers with fewer of them, each of which reads as far ahead as before."""
    now = model.reading
    return model.outcome(Reading("workers", count, now.depth // now.makers * count))


def hand_over(evidence: Evidence) -> Iterator[Finding]:
    """Bringing batches from workers to the trainer costs more than making them there would."""
    model, share = evidence.model, evidence.part("hand_over")
    if evidence.waits < LEAST or share is None or evidence.config.loader.num_workers == 0:
        return
    if share < HANDED and (model is None or not model.limited_by_hand_over):
        return
    why = unusable(evidence, fewer_cores=True)
    if model is None or why:
        yield f"fewer hand-overs: {why}"
        return
    off: dict[str, Value] = {
        "loader.num_workers": 0, "loader.prefetch_factor": None,
        "loader.persistent_workers": False, "loader.multiprocessing_context": None,
    }  # fmt: skip
    choices: list[Choice] = [
        (Reading("trainer"), off),
        (Reading("threads", 1, 2), {**off, "loader.read_threads": 1, "loader.prefetch_batches": 2}),
    ]
    chosen = best(evidence, model, choices)
    assert chosen is not None
    reading, settings = chosen
    predicted = evidence.forecast(
        reading,
        sure=False,
        assumption="making a batch takes as long in the trainer's process as in a worker, and compute as long as now",
    )
    if not worth(evidence, reading, predicted):
        yield "fewer hand-overs: the model predicts no gain worth having"
        return
    how = "in the trainer itself" if reading.by == "trainer" else "in a thread of the trainer's process"
    made = model.mean("made") or 0.0
    yield Advice(
        "hand_over",
        "loader.num_workers",
        "0",
        f"handing a batch over from a worker takes {format_duration(model.hand_over_s)} ({percent(share)} of the "
        f"waits) and making it {format_duration(made)}; making it {how} {outlook(predicted)}",
        (
            ("shares.fetch", evidence.waits),
            ("stalls.shares.hand_over", share),
            ("hand_over.seconds_per_batch", model.hand_over_s),
            ("batch.bytes", evidence.batch_bytes),
            *of_model(model),
        ),
        predicted,
        confidence(model, predicted),
        also(evidence, settings, "loader.num_workers"),
    )
