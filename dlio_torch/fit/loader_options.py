"""The loader of a recorded training: engine, worker processes, prefetching, open files, data in memory."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Literal, get_args

import numpy as np
import pandas as pd

from dlio_torch.config.schema import LoaderConfig
from dlio_torch.data.engines.facts import EngineFacts
from dlio_torch.data.engines.registry import all_facts
from dlio_torch.fit.calls_without_loader import loader_of_reads
from dlio_torch.fit.data_set import DataFit
from dlio_torch.fit.finding import Finding, Findings, findings
from dlio_torch.fit.recorded_training import RecordedLoader, RecordedTraining
from dlio_torch.fit.stream_order import is_stream
from dlio_torch.iotrace.events.call_names import CLASSES, CLOSE, MAP, OPEN, READ, class_codes
from dlio_torch.iotrace.figures.call_selection import within
from dlio_torch.units import counted, format_size

StartMethod = Literal["fork", "forkserver", "spawn"]

_IN_MEMORY = 0.01
"""Share of the bytes of a data set up to which reads during training do not count."""


def fit_loader(training: RecordedTraining, data: DataFit) -> Findings:
    """Options of the group ``loader``."""
    if training.training is None:
        return findings(loader_of_reads(training, data))
    recorded = training.training
    values = [*_engine(recorded), *_workers(recorded), *_delivery(recorded)]
    values += [*_style(recorded), *_in_memory(training, data), *_opened_by(training, data, recorded)]
    values += _open_files(training, data)
    values += _probed(training, data)
    return findings(values, _gaps(recorded))


def _engine(recorded: RecordedLoader) -> Iterator[Finding]:
    loader = recorded.loader
    name = loader.class_name.rpartition(".")[2]
    engine = next((facts.name for facts in all_facts() if facts.library_class == name), LoaderConfig().engine)
    if is_stream(recorded) and not engine_of(engine).streams:
        engine = LoaderConfig().engine
    yield Finding("loader.engine", engine, f"batches come from {loader.class_name}")


def engine_of(name: str) -> EngineFacts:
    """Facts about an engine."""
    return next(facts for facts in all_facts() if facts.name == name)


def _workers(recorded: RecordedLoader) -> Iterator[Finding]:
    """Processes, or threads, that read, and how far ahead of the trainer."""
    loader = recorded.loader
    name = loader.class_name.rpartition(".")[2]
    if loader.start_method == "thread":
        yield Finding("loader.num_workers", 0, f"{name} reads in threads")
        yield Finding("loader.read_threads", loader.num_workers, f"{name} has {counted(loader.num_workers, 'thread')}")
        ahead = max(1, loader.num_workers * (loader.prefetch_factor or 1))
        yield Finding("loader.prefetch_batches", ahead, f"{name} reads {counted(ahead, 'batch', 'batches')} ahead")
        return
    yield Finding("loader.num_workers", loader.num_workers, f"{name} was made with num_workers={loader.num_workers}")
    if not loader.num_workers:
        return
    if loader.prefetch_factor is not None:
        evidence = f"{name} has prefetch_factor={loader.prefetch_factor}"
        yield Finding("loader.prefetch_factor", loader.prefetch_factor, evidence)
    evidence = f"{name} has persistent_workers={loader.persistent_workers}"
    yield Finding("loader.persistent_workers", loader.persistent_workers, evidence)
    if loader.start_method in get_args(StartMethod):
        yield Finding("loader.multiprocessing_context", loader.start_method, f"workers start by {loader.start_method}")


def _delivery(recorded: RecordedLoader) -> Iterator[Finding]:
    loader = recorded.loader
    name = loader.class_name.rpartition(".")[2]
    if loader.pin_memory:
        yield Finding("loader.pin_memory", True, f"{name} has pin_memory=True")
    if not loader.in_order:
        yield Finding("loader.in_order", False, f"{name} has in_order=False")
    if loader.timeout_s:
        yield Finding("loader.timeout_s", float(loader.timeout_s), f"{name} has timeout={loader.timeout_s:g}")


def _style(recorded: RecordedLoader) -> Iterator[Finding]:
    """Class of the data set in torch; streams are pipes anyway."""
    dataset = recorded.dataset
    if dataset is not None and dataset.style == "datapipe" and not is_stream(recorded):
        yield Finding("loader.style", "pipe", f"the data set {dataset.class_name} is a DataPipe")


def _in_memory(training: RecordedTraining, data: DataFit) -> Iterator[Finding]:
    """Whether the program reads all data before its first batch, and none later."""
    recorded = training.training
    if recorded is None or recorded.dataset is None or recorded.dataset.style != "map":
        return
    calls = training.calls[within(training.calls, data.files)]
    codes = class_codes(calls)
    reads = calls[codes == CLASSES.index(READ)]
    moved, begins = np.maximum(reads["bytes"].to_numpy(), 0), reads["start_ns"].to_numpy()
    later = int(moved[begins >= training.begin_ns].sum())
    if moved.sum() and later <= _IN_MEMORY * moved.sum() and not (codes == CLASSES.index(MAP)).any():
        evidence = f"{format_size(int(moved.sum()))} were read before the first batch, and {format_size(later)} later"
        yield Finding("loader.in_memory", True, evidence, "likely")


def _opened_by(training: RecordedTraining, data: DataFit, recorded: RecordedLoader) -> Iterator[Finding]:
    """Whether workers inherit files that were mapped before the first batch."""
    calls = training.calls[within(training.calls, data.files)]
    maps = calls[(class_codes(calls) == CLASSES.index(MAP)) & (calls["op"] == "mmap").to_numpy()]
    is_inherited = recorded.loader.num_workers and recorded.loader.start_method == "fork"
    if len(maps) and is_inherited and (calls["dataset"] < 0).all() and maps["start_ns"].max() < training.begin_ns:
        evidence = f"{counted(len(maps), 'map')} before the first batch, none by a worker"
        yield Finding("loader.opened_by", "main", evidence)


def _open_files(training: RecordedTraining, data: DataFit) -> Iterator[Finding]:
    """Files that a process keeps open, where that differs from the default."""
    calls = training.calls[within(training.calls, data.files) & (training.calls["dataset"] >= 0)]
    kept = [(open_at_once(of_process), of_process["file"].nunique()) for _, of_process in calls.groupby("pid")]
    most, files = max(kept, default=(0, 0))
    usual = LoaderConfig().max_open_files
    if most > usual or 1 < most < files:
        evidence = f"a process has up to {counted(most, 'file')} of {files} open at the same time"
        yield Finding("loader.max_open_files", most, evidence, "likely")


def _probed(training: RecordedTraining, data: DataFit) -> Iterator[Finding]:
    """Files that the trainer opens before its first batch, and closes, as they are opened again for samples."""
    recorded = training.training
    if recorded is None:
        return
    calls = training.calls[within(training.calls, data.files)]
    opens = calls[class_codes(calls) == CLASSES.index(OPEN)]
    early = opens[(opens["pid"] == recorded.loader.pid) & (opens["start_ns"] < training.begin_ns)]
    later = opens["file"][~opens.index.isin(early.index)]
    probed = early["file"][early["file"].isin(set(later))].nunique()
    if probed:
        value = "all" if probed > 1 and 2 * probed >= len(data.files) else "first"
        evidence = f"the trainer opens {counted(probed, 'file')} before the first batch, which are opened again later"
        yield Finding("loader.probe_files", value, evidence, "likely")


def open_at_once(calls: pd.DataFrame) -> int:
    """Most files that a process has open at the same time.

    Args:
        calls: of one process.
    """
    ordered = calls.sort_values("start_ns", kind="stable")
    codes = class_codes(ordered)
    change = (codes == CLASSES.index(OPEN)).astype(np.int64) - (codes == CLASSES.index(CLOSE))
    by_file = pd.DataFrame({"file": ordered["file"].to_numpy(), "change": change})
    # A close whose open was not recorded, or a second descriptor of a file, is no further file.
    handles = by_file.groupby("file", observed=True)["change"].cumsum().to_numpy()
    is_first = (change == 1) & (handles == 1)
    is_last = (change == -1) & (handles == 0)
    return int(np.cumsum(is_first.astype(np.int64) - is_last).max(initial=0))


def _gaps(recorded: RecordedLoader) -> Iterator[str]:
    dataset = recorded.dataset
    if dataset is None or dataset.style != "nodes":
        return
    if is_stream(recorded):
        yield "torchdata's nodes read a stream; the recipe reads it by a DataLoader"
    elif recorded.loader.num_workers or recorded.loader.prefetch_factor:
        yield "each chain of torchdata's nodes reads ahead in a way of its own; the recipe prefetches whole batches"
