"""Rules on the number of producers and on their prefetch depth, which use the loader model."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from dlio_torch.analysis.advice.advice_item import Advice, Predicted, Value
from dlio_torch.analysis.advice.choice import TAKEN, Choice, Finding, also, best, unusable, worth
from dlio_torch.analysis.advice.evidence import LEAST, Evidence
from dlio_torch.analysis.advice.loader_model import LoaderModel
from dlio_torch.analysis.advice.loader_replay import LoaderSetup
from dlio_torch.analysis.advice.model_figures import confidence, cores, of_machine, of_model, who
from dlio_torch.analysis.advice.value_text import outlook, value_text
from dlio_torch.units import percent

IDLE = 0.25
"""Share of the producers' time that is idle above which more producers do not help."""
AHEAD = 0.1
"""Share of the waits that deeper prefetching could avoid, above which prefetching is judged."""
_LADDER = (1, 2, 3, 4, 6, 8, 12, 16)
_DEEPER = (2, 4, 8)


def more_readers(evidence: Evidence) -> Iterator[Finding]:
    """Rule on slow production: the machine has cores for more workers or threads."""
    model = evidence.model
    if evidence.waits < LEAST:
        return
    if model is None or unusable(evidence):
        yield f"more workers: {unusable(evidence)}"
        return
    if model.idle is not None and model.idle >= IDLE:
        yield f"more workers: {who(model.setup)} had no batch to produce {percent(model.idle)} of the time"
        return
    now = model.setup.producers
    most = min(model.most_producers(), 4 * max(now, 1), _LADDER[-1])
    if most <= now:
        yield f"more workers: the machine has no free core ({cores(evidence, model)})"
        return
    counts = [count for count in _LADDER if now < count <= most]
    by_threads = model.setup.by == "threads"
    kinds = (_threads, _workers) if by_threads else (_workers,)
    advice: list[Advice] = []
    for kind in kinds:
        chosen = best(evidence, model, [kind(evidence, count) for count in counts])
        if chosen is None:
            continue
        setup, settings = chosen
        known = model.knows_transfer and setup.by == model.setup.by
        unknown = _not_known_to_grow(evidence, model)
        predicted = evidence.forecast(
            setup, sure=known and unknown is None, assumption=_assumption(known=known, unknown=unknown)
        )
        if worth(evidence, setup, predicted):
            advice.append(_advice(evidence, model, settings, predicted, unknown))
    # Threads that may keep each other out of the interpreter are worth less than workers, which cannot.
    firm = [item for item in advice if item.predicted is not None and _firm(item.predicted)]
    yield from (firm or advice)[:1]
    if not advice:
        taken = f" while other programs use the cores ({cores(evidence, model)})" if model.others >= TAKEN else ""
        yield f"more workers: the predicted gain is too small{taken}"


def deeper_prefetch(evidence: Evidence) -> Iterator[Finding]:
    """Rule on prefetching: producers were idle before they produced batches that the trainer waited for."""
    model = evidence.model
    ahead, waited = evidence.number("stalls.ahead_s"), evidence.number("stalls.wait_s")
    if evidence.waits < LEAST or not waited or ahead is None or ahead < AHEAD * waited:
        return
    if model is None or unusable(evidence):
        yield f"deeper prefetching: {unusable(evidence)}"
        return
    now = model.setup
    if now.by == "trainer":
        return
    key = "loader.prefetch_factor" if now.by == "workers" else "loader.prefetch_batches"
    share = now.producers if now.by == "workers" else 1
    choices: list[Choice] = [
        (LoaderSetup(now.by, now.producers, now.depth * factor), {key: now.depth // share * factor})
        for factor in _DEEPER
        if evidence.holds(now.depth * factor)
    ]
    chosen = best(evidence, model, choices)
    if chosen is None:
        yield "deeper prefetching: more batches do not fit into a quarter of the free memory"
        return
    setup, settings = chosen
    predicted = evidence.forecast(
        setup, sure=True, assumption="producing a batch and computing a step take as long as in this run"
    )
    if not worth(evidence, setup, predicted):
        yield "deeper prefetching: the predicted gain is too small"
        return
    yield Advice(
        "deeper_prefetch",
        key,
        value_text(settings[key]),
        f"steps wait for data {percent(evidence.waits)} of the time; up to {percent(ahead / waited)} of this wait "
        f"was avoidable, because {who(now)} had nothing to do before; {key}={settings[key]} (now "
        f"{now.depth // share}) {outlook(predicted)}",
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
    """Whether the smallest gain is not in doubt, or at least half of the largest gain."""
    return predicted.gain_low is None or predicted.gain_low >= (predicted.gain_high or 0.0) / 2


def _workers(evidence: Evidence, count: int) -> Choice:
    loader = evidence.config.loader
    settings: dict[str, Value] = {"loader.num_workers": count}
    if loader.read_threads:
        settings["loader.read_threads"] = 0
    return LoaderSetup("workers", count, count * loader.prefetched), settings


def _threads(evidence: Evidence, count: int) -> Choice:
    depth = max(count, evidence.config.loader.prefetch_batches)
    return LoaderSetup("threads", count, depth), {"loader.read_threads": count, "loader.prefetch_batches": depth}


def _not_known_to_grow(evidence: Evidence, model: LoaderModel) -> str | None:
    """Condition of the advice: what production waits for must serve more concurrent requests; None if it does."""
    asleep, read = model.mean("asleep") or 0.0, model.mean("read") or 0.0
    if model.cpu_share >= 0.5:
        return None
    if read < asleep / 2:
        return "the resource that batch production waits for serves more concurrent requests"
    # The most that the storage gives was measured by large requests in order.
    if evidence.figure("storage.pattern") == "sequential" and evidence.number("storage.share_of_most") is not None:
        return None
    return (
        "the storage delivers a higher rate for more concurrent requests (set storage.limits=measure to measure its "
        "limit)"
    )


def _advice(
    evidence: Evidence, model: LoaderModel, settings: Mapping[str, Value], predicted: Predicted, unknown: str | None
) -> Advice:
    now = model.setup.producers
    key = "loader.num_workers" if "loader.num_workers" in settings else "loader.read_threads"
    same = now > 0 and (key == "loader.read_threads") == (model.setup.by == "threads")
    change = f"raising {key} from {now} to {settings[key]}" if same else f"{key}={settings[key]}"
    are = f"{who(model.setup)} {'is' if now == 1 else 'are'}"
    idle = "" if model.idle is None else f"; {are} idle {percent(model.idle)} of the time"
    unless = "" if unknown is None else f", if {unknown}"
    return Advice(
        "more_readers",
        key,
        value_text(settings[key]),
        f"steps wait for data {percent(evidence.waits)} of the time{idle}; {cores(evidence, model)}; {change} "
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
    said = ["producing a batch takes as long as in this run"]
    if not known:
        said.append("the transfer of a batch to the trainer, which this run did not have, costs no time")
    if unknown is not None:
        said.append(unknown)
    return "; ".join(said)
