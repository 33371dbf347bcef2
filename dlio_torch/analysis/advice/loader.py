"""Rules on who makes batches, and how far ahead: all by the model of the loader."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from dlio_torch.analysis.advice.choice import TAKEN, Choice, Finding, also, best, unusable, worth
from dlio_torch.analysis.advice.clock import Reading
from dlio_torch.analysis.advice.evidence import LEAST, Advice, Evidence, Predicted, Value
from dlio_torch.analysis.advice.figures import confidence, cores, of_machine, of_model, who
from dlio_torch.analysis.advice.model import Model
from dlio_torch.analysis.advice.text import outlook, percent, value_text

IDLE = 0.25
"""From this share of their time without a batch to make, more makers are not what is missing."""
AHEAD = 0.1
"""From this share of the waits that reading further ahead could have saved, it is looked at."""
_LADDER = (1, 2, 3, 4, 6, 8, 12, 16)
_DEEPER = (2, 4, 8)


def more_readers(evidence: Evidence) -> Iterator[Finding]:
    """Batches are made too slowly, and there are cores for more workers or threads."""
    model = evidence.model
    if evidence.waits < LEAST:
        return
    if model is None or unusable(evidence):
        yield f"more workers: {unusable(evidence)}"
        return
    if model.idle is not None and model.idle >= IDLE:
        yield f"more workers: {who(model.reading)} had nothing to do {percent(model.idle)} of the time"
        return
    now = model.reading.makers
    most = min(model.most_makers(), 4 * max(now, 1), _LADDER[-1])
    if most <= now:
        yield f"more workers: there is no free core ({cores(evidence, model)})"
        return
    counts = [count for count in _LADDER if now < count <= most]
    by_threads = model.reading.by == "threads"
    kinds = (_threads, _workers) if by_threads else (_workers,)
    found: list[Advice] = []
    for kind in kinds:
        chosen = best(evidence, model, [kind(evidence, count) for count in counts])
        if chosen is None:
            continue
        reading, settings = chosen
        known = model.knows_hand_over and reading.by == model.reading.by
        unknown = _not_known_to_grow(evidence, model)
        predicted = evidence.forecast(
            reading, sure=known and unknown is None, assumption=_assumption(known=known, unknown=unknown)
        )
        if worth(evidence, reading, predicted):
            found.append(_advice(evidence, model, settings, predicted, unknown))
    # Threads that may keep each other out of the interpreter are worth less than workers, which cannot.
    firm = [item for item in found if item.predicted is not None and _firm(item.predicted)]
    yield from (firm or found)[:1]
    if not found:
        taken = f" while other programs use the cores ({cores(evidence, model)})" if model.others >= TAKEN else ""
        yield f"more workers: the model predicts no gain worth having{taken}"


def deeper_prefetch(evidence: Evidence) -> Iterator[Finding]:
    """Makers had nothing to do before batches that were then waited for."""
    model = evidence.model
    ahead, waited = evidence.number("stalls.ahead_s"), evidence.number("stalls.wait_s")
    if evidence.waits < LEAST or not waited or ahead is None or ahead < AHEAD * waited:
        return
    if model is None or unusable(evidence):
        yield f"reading further ahead: {unusable(evidence)}"
        return
    now = model.reading
    if now.by == "trainer":
        return
    key = "loader.prefetch_factor" if now.by == "workers" else "loader.prefetch_batches"
    share = now.makers if now.by == "workers" else 1
    choices: list[Choice] = [
        (Reading(now.by, now.makers, now.depth * factor), {key: now.depth // share * factor})
        for factor in _DEEPER
        if evidence.holds(now.depth * factor)
    ]
    chosen = best(evidence, model, choices)
    if chosen is None:
        yield "reading further ahead: a quarter of the free memory does not hold more batches"
        return
    reading, settings = chosen
    predicted = evidence.forecast(
        reading, sure=True, assumption="batches take as long to make, and steps as long to compute, as in this run"
    )
    if not worth(evidence, reading, predicted):
        yield "reading further ahead: the model predicts no gain worth having"
        return
    yield Advice(
        "deeper_prefetch",
        key,
        value_text(settings[key]),
        f"fetch waits {percent(evidence.waits)} of the time, {percent(ahead / waited)} of that although "
        f"{who(now)} had nothing to do before; {key}={settings[key]} (now {now.depth // share}) {outlook(predicted)}",
        (
            ("shares.fetch", evidence.waits),
            ("stalls.ahead_s", ahead),
            ("stalls.wait_s", waited),
            *of_model(model),
        ),
        predicted,
        confidence(model, predicted),
    )


def _firm(predicted: Predicted) -> bool:
    """Whether the least gain, where it is known, is not far from the most."""
    return predicted.gain_low is None or predicted.gain_low >= (predicted.gain_high or 0.0) / 2


def _workers(evidence: Evidence, count: int) -> Choice:
    loader = evidence.config.loader
    settings: dict[str, Value] = {"loader.num_workers": count}
    if loader.read_threads:
        settings["loader.read_threads"] = 0
    return Reading("workers", count, count * loader.prefetched), settings


def _threads(evidence: Evidence, count: int) -> Choice:
    depth = max(count, evidence.config.loader.prefetch_batches)
    return Reading("threads", count, depth), {"loader.read_threads": count, "loader.prefetch_batches": depth}


def _not_known_to_grow(evidence: Evidence, model: Model) -> str | None:
    """What batches mostly wait for while they are made, where nothing says that it serves more of them at once."""
    asleep, read = model.mean("asleep") or 0.0, model.mean("read") or 0.0
    if model.cpu_share >= 0.5:
        return None
    if read < asleep / 2:
        return "what batches wait for while they are made serves more of them at once"
    # The most that the storage gives was measured by large requests in order.
    if evidence.figure("storage.pattern") == "sequential" and evidence.number("storage.share_of_most") is not None:
        return None
    return "the storage gives more when it is asked for more at once (storage.limits=measure tells its limit)"


def _advice(
    evidence: Evidence, model: Model, settings: Mapping[str, Value], predicted: Predicted, unknown: str | None
) -> Advice:
    now = model.reading.makers
    key = "loader.num_workers" if "loader.num_workers" in settings else "loader.read_threads"
    same = now > 0 and (key == "loader.read_threads") == (model.reading.by == "threads")
    change = f"raising {key} from {now} to {settings[key]}" if same else f"{key}={settings[key]}"
    are = f"{who(model.reading)} {'is' if now == 1 else 'are'}"
    idle = "" if model.idle is None else f"; {are} idle {percent(model.idle)}"
    unless = "" if unknown is None else f", if {unknown}"
    return Advice(
        "more_readers",
        key,
        value_text(settings[key]),
        f"fetch waits {percent(evidence.waits)} of the time{idle}; {cores(evidence, model)}; {change} "
        f"{outlook(predicted)}{unless}",
        (
            ("shares.fetch", evidence.waits),
            *((("making.idle_share", model.idle),) if model.idle is not None else ()),
            *of_model(model),
            *of_machine(evidence, model),
        ),
        predicted,
        "low" if unknown is not None else confidence(model, predicted),
        also(evidence, settings, key),
    )


def _assumption(*, known: bool, unknown: str | None) -> str:
    said = ["each batch takes as long to make as in this run"]
    if not known:
        said.append("its hand-over to the trainer, which this run did not have, costs nothing")
    if unknown is not None:
        said.append(unknown)
    return "; ".join(said)
