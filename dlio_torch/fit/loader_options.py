"""The loader of a recorded training: engine, worker processes, prefetching."""

from __future__ import annotations

from collections.abc import Iterator

from dlio_torch.config.schema import LoaderConfig
from dlio_torch.data.engines.registry import all_facts
from dlio_torch.fit.calls_without_loader import loader_of_reads
from dlio_torch.fit.data_set import DataFit
from dlio_torch.fit.finding import Finding, Findings, findings
from dlio_torch.fit.recorded_training import RecordedLoader, RecordedTraining


def fit_loader(training: RecordedTraining, data: DataFit) -> Findings:
    """Options of the group ``loader``."""
    if training.training is None:
        return findings(loader_of_reads(training, data))
    return findings(_as_made(training.training))


def _as_made(recorded: RecordedLoader) -> Iterator[Finding]:
    """Values with which the program made its loader."""
    loader = recorded.loader
    name = loader.class_name.rpartition(".")[2]
    engine = next((facts.name for facts in all_facts() if facts.library_class == name), LoaderConfig().engine)
    yield Finding("loader.engine", engine, f"batches come from {loader.class_name}")
    yield Finding("loader.num_workers", loader.num_workers, f"{name} was made with num_workers={loader.num_workers}")
    if loader.num_workers:
        yield Finding(
            "loader.prefetch_factor", loader.prefetch_factor, f"{name} has prefetch_factor={loader.prefetch_factor}"
        )
        yield Finding(
            "loader.persistent_workers",
            loader.persistent_workers,
            f"{name} has persistent_workers={loader.persistent_workers}",
        )
        if loader.start_method is not None:
            yield Finding(
                "loader.multiprocessing_context", loader.start_method, f"workers start by {loader.start_method}"
            )
    if loader.pin_memory:
        yield Finding("loader.pin_memory", True, f"{name} has pin_memory=True")
    if not loader.in_order:
        yield Finding("loader.in_order", False, f"{name} has in_order=False")
    if recorded.dataset is not None and recorded.dataset.style == "datapipe":
        yield Finding("loader.style", "pipe", f"the data set {recorded.dataset.class_name} is a DataPipe")
