"""The figures of the loader's model that stand as evidence, and words for them."""

from __future__ import annotations

from dlio_torch.analysis.advice.clock import Reading
from dlio_torch.analysis.advice.evidence import Evidence, Figures, Predicted
from dlio_torch.analysis.advice.model import Model

_NOISY = 0.5  # relative: the mean time of a step is not known any better than that


def of_model(model: Model) -> Figures:
    """What a batch costs, seconds."""
    measured = model.measured
    return (
        ("making.seconds_per_batch", model.mean("made")),
        ("making.cpu_share", model.cpu_share),
        ("making.run_delay_share", model.starved),
        ("step.rest_s", measured.step_s - measured.fetch_s),
        ("model.error", model.error),
        ("model.batches", model.batches),
    )


def of_machine(evidence: Evidence, model: Model) -> Figures:
    """What there was to make it with."""
    return (
        ("environment.cpu.cores_usable", evidence.cores),
        *((("environment.cpu.cores_physical", full),) if (full := evidence.full_cores) is not None else ()),
        *((("cores.idle", idle),) if (idle := evidence.idle_cores) is not None else ()),
        ("cores.free_of_a_rank", model.cores),
        ("ranks.on_this_machine", evidence.ranks_here),
    )


def cores(evidence: Evidence, model: Model) -> str:
    """The cores of the machine in words."""
    if model.cores is None or evidence.cores is None:
        return "the number of cores is not known"
    cores = f"{evidence.cores:g} core{'' if evidence.cores == 1 else 's'}"
    here = "" if evidence.ranks_here == 1 else f" for {evidence.ranks_here} ranks"
    busy = evidence.cores / evidence.ranks_here - model.cores
    spins = f", {busy:g} of them used by compute" if busy and not here else ""
    idle = "" if evidence.idle_cores is None else f", {evidence.idle_cores:.1f} of them idle"
    return f"{cores}{here}{spins}{idle}"


def who(reading: Reading) -> str:
    """Who makes batches, in words."""
    name = "worker" if reading.by == "workers" else "reader thread"
    return f"the {name}" if reading.makers == 1 else f"{name}s"


def confidence(model: Model, predicted: Predicted) -> str:
    """How far a prediction of the model can be trusted."""
    if model.noise > _NOISY:
        return "low"
    if abs(model.error) <= 0.1 and model.batches >= 30 and model.noise <= 0.2 and predicted.high is not None:
        return "high"
    return "medium"
