"""Figures of the loader model as evidence for advice, and their text."""

from __future__ import annotations

from dlio_torch.analysis.advice.advice_item import Figures, Predicted
from dlio_torch.analysis.advice.evidence import Evidence
from dlio_torch.analysis.advice.loader_model import LoaderModel
from dlio_torch.analysis.advice.loader_replay import LoaderSetup

_NOISY = 0.5  # relative: the mean time of a step is not known any better than that


def of_model(model: LoaderModel) -> Figures:
    """Figures of the loader model: costs of a batch in seconds, shares, and the model's error."""
    measured = model.measured
    return (
        ("making.seconds_per_batch", model.mean("production")),
        ("making.cpu_share", model.cpu_share),
        ("making.run_delay_share", model.starved),
        ("step.rest_s", measured.step_s - measured.fetch_s),
        ("advice.model.error", model.error),
        ("advice.model.batches", model.batches),
    )


def of_machine(evidence: Evidence, model: LoaderModel) -> Figures:
    """Figures of the machine: the cores that producers can use."""
    return (
        ("environment.cpu.cores_usable", evidence.cores),
        *((("environment.cpu.cores_physical", full),) if (full := evidence.full_cores) is not None else ()),
        *((("cores.idle", idle),) if (idle := evidence.idle_cores) is not None else ()),
        ("cores.free_of_a_rank", model.cores),
        ("ranks.on_this_machine", evidence.ranks_here),
    )


def cores(evidence: Evidence, model: LoaderModel) -> str:
    """Text on the number of cores that a run has, uses and leaves idle."""
    if model.cores is None or evidence.cores is None:
        return "the number of CPU cores is not known"
    cores = f"{evidence.cores:g} CPU core{'' if evidence.cores == 1 else 's'}"
    here = "" if evidence.ranks_here == 1 else f" for {evidence.ranks_here} ranks"
    busy = evidence.cores / evidence.ranks_here - model.cores
    spins = f", {busy:g} of them used by compute" if busy and not here else ""
    idle = "" if evidence.idle_cores is None else f", {evidence.idle_cores:.1f} of them idle"
    return f"{cores}{here}{spins}{idle}"


def who(setup: LoaderSetup) -> str:
    """Text that names the producers."""
    name = "worker" if setup.by == "workers" else "reader thread"
    return f"the {name}" if setup.producers == 1 else f"{name}s"


def confidence(model: LoaderModel, predicted: Predicted) -> str:
    """Confidence in a prediction of the loader model."""
    if model.noise > _NOISY:
        return "low"
    if abs(model.error) <= 0.1 and model.batches >= 30 and model.noise <= 0.2 and predicted.high is not None:
        return "high"
    return "medium"
