"""Assumptions of a prediction as sentences: measured, described and guessed values, and omissions."""

from __future__ import annotations

from collections.abc import Mapping

from dlio_torch.config.schema_run import SystemConfig
from dlio_torch.prediction.cluster import stripes_of
from dlio_torch.prediction.project import Question, described, file_bytes
from dlio_torch.prediction.rank_workload import RankWorkload
from dlio_torch.units import format_duration, format_rate, format_size

LEFT_OUT = (
    "other jobs on the storage and the network",
    "locks and metadata of a file beyond its opening",
    "evaluation, and the start of workers in each epoch",
    "caches of storage servers",
    "failures",
)


def assumptions(
    workload: RankWorkload, system: SystemConfig, question: Question, sources: Mapping[str, str], error: float
) -> dict[str, list[str]]:
    """Sentences by kind: ``measured``, ``described``, ``guessed``, ``left out``.

    Args:
        workload: of the measured run.
        system: the described one.
        question: parameters of the prediction.
        sources: where each option of the system was set, by dotted key.
        error: of the simulation of the run itself, relative.
    """
    workload = described(workload, question)
    guesses = {f"system.{name}" for name in system.guessed}
    values = _described(workload, system, question)
    if question.files is not None and question.samples is not None:
        values["files, samples"] = f"{question.files} file(s), {question.samples} samples of an epoch"
        sources = {**sources, "files, samples": "command line"}
    overridden = {key for key in guesses if sources.get(key) == "command line"}  # given here: no longer a guess
    sentences = {key: f"{text} ({key}, {sources.get(key, 'default')})" for key, text in values.items()}
    return {
        "measured": [*_measured(workload), _check(error)],
        "described": [text for key, text in sentences.items() if key not in guesses - overridden] or ["nothing"],
        "guessed": [
            *(text for key, text in sentences.items() if key in guesses - overridden),
            *_guessed(workload, question),
        ],
        "left out": list(LEFT_OUT),
    }


def _check(error: float) -> str:
    return f"simulated with its own storage, this run has {error:+.1%} of its throughput"


def _measured(workload: RankWorkload) -> list[str]:
    setup = workload.setup
    who = "the trainer itself" if not setup.producers else f"{setup.producers} {setup.by}, {setup.depth} ahead"
    read = f"{format_size(workload.bytes)} in {workload.requests:.1f} requests" if workload.bytes else "nothing"
    lines = [
        f"{workload.ranks} rank(s), batches of {workload.samples:g} samples made by {who}; one reads {read}, "
        f"{'in order' if workload.in_order else 'at random'}, and opens {workload.opens:.2g} files",
        *workload.notes,
        f"compute of a step {format_duration(float(workload.compute.mean()))}, whatever the number of ranks",
    ]
    if workload.first_opens:
        lines.append(f"each producer opens {workload.first_opens:.3g} files as it begins")
    if workload.header_requests is not None:
        lines.append(f"opening a file takes {workload.header_requests:.3g} reads at its begin")
    if workload.checkpoint is not None:
        who = "each rank" if workload.checkpoint.all_ranks else "the first rank"
        lines.append(f"{who} writes {format_size(workload.checkpoint.bytes)} for a checkpoint")
    return lines


def _described(workload: RankWorkload, system: SystemConfig, question: Question) -> dict[str, str]:
    def limit(value: float, text: str, none: str) -> str:
        return text if value else none

    texts = {"system.ranks_per_node": f"{system.ranks_per_node} rank(s) on a node"}
    cores = system.cores_per_node
    texts["system.cores_per_node"] = limit(
        cores, f"{cores} cores of a node make batches, compute needs none", "a core for each producer"
    )
    if question.cached < 1 and system.read_bytes_per_s:
        rate = system.target_requests_per_s
        client, opens = system.client_bytes_per_s, system.metadata_ops_per_s
        written = system.write_bytes_per_s or system.read_bytes_per_s
        spread, size = stripes_of(system, file_bytes(workload)), file_bytes(workload)
        texts |= {
            "system.read_bytes_per_s": f"reads at {format_rate(system.read_bytes_per_s)} at the most",
            "system.targets": f"{system.targets} storage target(s), each an equal part of it, first come, first served",
            "system.stripe_bytes": f"stripes of {format_size(system.stripe_bytes)}",
            "system.stripe_count": f"a file of {format_size(size)} lies on {spread} target(s)"
            if size
            else f"a file lies on {spread} target(s)",
            "system.target_requests_per_s": limit(
                rate, f"a target answers {rate:g} requests/s at the most", "any number of requests per second"
            ),
            "system.request_latency_s": f"a request takes {format_duration(system.request_latency_s)} on its way",
            "system.metadata_ops_per_s": limit(
                opens, f"{opens:g} opens/s at the most", "any number of opens per second"
            ),
            "system.client_bytes_per_s": limit(
                client, f"a node moves {format_rate(client)} at the most", "any rate of a node"
            ),
        }
        if workload.checkpoint is not None:
            texts["system.write_bytes_per_s"] = f"writes at {format_rate(written)} at the most"
    if workload.barrier:
        rate = system.network_bytes_per_s
        texts["system.network_bytes_per_s"] = limit(
            rate,
            f"a ring exchanges {format_size(workload.allreduce_bytes)} of gradient at {format_rate(rate)} a rank",
            "the exchange of gradients costs the wait for the last rank alone",
        )
    return texts


def _guessed(workload: RankWorkload, question: Question) -> list[str]:
    lines = []
    if workload.bytes or workload.load_bytes:
        lines.append(
            f"page caches of the nodes deliver {question.cached:.0%} of the bytes (cached=), the storage the rest"
        )
    if workload.header_requests is None and workload.first_opens:
        lines.append("opening a file takes one read; trace.posix=true would have recorded how many")
    if workload.bytes:
        lines.append("each rank goes on reading as much in a batch as here, at places spread evenly over the files")
        lines.append(
            "a producer waits for each request before the next; a batch's requests are served in up to 4 visits"
        )
    if workload.in_order and workload.bytes:
        lines.append("reading ahead joins requests that follow one another, up to a stripe")
    if question.files is None or question.samples is None:
        lines.append(
            f"the data set has {workload.files} file(s), an epoch {workload.epoch_samples} samples, as in the run "
            "where files= and samples= do not say otherwise"
        )
    lines.append(
        "ranks wait for each other in each step"
        if workload.barrier
        else "ranks do not wait for each other (train.allreduce_bytes=0)"
    )
    if workload.checkpoint is not None:
        lines.append("checkpoints begin at once on all ranks that save, while nothing is read")
    if workload.global_batch:
        lines.append("a batch of all ranks is cut evenly, and what making it costs with it; compute stays")
    return lines
