"""States the assumptions of a prediction as sentences: measured, described, guessed and missing values, omissions."""

from __future__ import annotations

from collections.abc import Mapping

from dlio_torch.config.schema_run import SystemConfig
from dlio_torch.prediction.cluster import stripes_of
from dlio_torch.prediction.predicted_saves import Checkpoint
from dlio_torch.prediction.project import Question, described, file_bytes
from dlio_torch.prediction.rank_workload import RankWorkload
from dlio_torch.units import counted, format_duration, format_rate, format_size, percent

LEFT_OUT = (
    "load of other jobs on the storage and the network",
    "locks on a file, and its metadata operations other than open",
    "evaluation, and the start of workers in each epoch",
    "caches of storage servers",
    "failures",
)


_COSTS = {
    "system.cores_per_node": "waits of producers for a core of the node",
    "system.target_requests_per_s": "time of a storage target per request, beside the transfer",
    "system.request_latency_s": "latency of a request",
    "system.metadata_ops_per_s": "time of the metadata servers per open",
    "system.client_bytes_per_s": "time of a transfer on the link of a node",
    "system.network_bytes_per_s": "time of the gradient on the network",
}
"""Options of the system without which a cost is left out, and that cost."""


def assumptions(
    workload: RankWorkload, system: SystemConfig, question: Question, sources: Mapping[str, str], error: float
) -> dict[str, list[str]]:
    """Sentences on the assumptions by kind: ``measured``, ``described``, ``guessed``, ``not given``, ``left out``.

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
        values["files, samples"] = f"{counted(question.files, 'file')} and {question.samples} samples per epoch"
        sources = {**sources, "files, samples": "command line"}
    # A zero that the user wrote is a description; the default is no figure.
    missing = [key for key in _COSTS if key in values and sources.get(key, "default") == "default"]
    missing = [key for key in missing if not getattr(system, key.partition(".")[2])]
    overridden = {key for key in guesses if sources.get(key) == "command line"}  # given here: no longer a guess
    sentences = {key: f"{text} ({key}, {sources.get(key, 'default')})" for key, text in values.items()}
    return {
        "measured": [*_measured(workload), _check(error)],
        "described": [text for key, text in sentences.items() if key not in {*guesses, *missing} - overridden]
        or ["nothing"],
        "guessed": [
            *(text for key, text in sentences.items() if key in guesses - overridden),
            *_guessed(workload, question),
        ],
        "not given": [f"{_COSTS[key]}: not given, counted as 0 ({key})" for key in missing],
        "left out": list(LEFT_OUT),
    }


def _check(error: float) -> str:
    return (
        "check of the simulation: with the run's own storage, the simulated throughput of this run differs by "
        f"{100 * error:+.1f} % from the measured one"
    )


def _measured(workload: RankWorkload) -> list[str]:
    setup = workload.setup
    who = (
        "the trainer itself"
        if not setup.producers
        else (f"{setup.producers} {setup.by} with a prefetch depth of {setup.depth}")
    )
    read = f"{format_size(workload.bytes)} in {workload.requests:.1f} requests" if workload.bytes else "nothing"
    lines = [
        f"{counted(workload.ranks, 'rank')}, batches of {workload.samples:g} samples produced by "
        f"{who}; a batch reads {read}, "
        f"{'in order' if workload.in_order else 'at random'}, and opens {workload.opens:.2g} files",
        *workload.notes,
        f"compute of a step takes {format_duration(float(workload.compute.mean()))} for any number of ranks",
    ]
    if workload.first_opens:
        lines.append(f"each producer opens {workload.first_opens:.3g} files when it starts")
    if workload.header_requests is not None:
        lines.append(f"opening a file takes {workload.header_requests:.3g} reads at the begin of the file")
    if workload.checkpoint is not None:
        lines += _measured_saves(workload.checkpoint)
    return lines


def _measured_saves(saved: Checkpoint) -> list[str]:
    if saved.job is None:
        who = "each rank" if saved.all_ranks else "the first rank"
        return [f"{who} writes {format_size(saved.bytes)} for a checkpoint"]
    cost = saved.job.cost
    if cost is None:
        return []
    return [
        f"planning a checkpoint of {counted(cost.ranks, 'rank')} takes {format_duration(cost.local_s)} for the plan "
        f"of a rank and {format_duration(cost.global_s)} for the plan of all, measured now on this machine, with "
        f"{format_size(cost.plan_bytes)} of plans to gather"
    ]


def _described(workload: RankWorkload, system: SystemConfig, question: Question) -> dict[str, str]:
    def limit(value: float, text: str, none: str) -> str:
        return text if value else none

    texts = {"system.ranks_per_node": f"{counted(system.ranks_per_node, 'rank')} per node"}
    cores = system.cores_per_node
    texts["system.cores_per_node"] = limit(
        cores, f"{cores} cores of a node produce batches; compute needs no core", "each producer has its own core"
    )
    if question.cached < 1 and system.read_bytes_per_s:
        rate = system.target_requests_per_s
        client, opens = system.client_bytes_per_s, system.metadata_ops_per_s
        written = system.write_bytes_per_s or system.read_bytes_per_s
        spread, size = stripes_of(system, file_bytes(workload)), file_bytes(workload)
        texts |= {
            "system.read_bytes_per_s": f"the storage delivers at most {format_rate(system.read_bytes_per_s)} to reads",
            "system.targets": (
                f"the storage has {counted(system.targets, 'storage target')} of equal read rate, each of which serves "
                "requests in order of arrival"
            ),
            "system.stripe_bytes": f"stripes have {format_size(system.stripe_bytes)}",
            "system.stripe_count": f"a file of {format_size(size)} lies on {counted(spread, 'storage target')}"
            if size
            else f"a file lies on {counted(spread, 'storage target')}",
            "system.target_requests_per_s": limit(
                rate,
                f"a storage target serves at most {rate:g} requests/s",
                ("a storage target serves any number of requests per second"),
            ),
            "system.request_latency_s": (
                f"a request travels {format_duration(system.request_latency_s)} between node and storage"
            ),
            "system.metadata_ops_per_s": limit(
                opens,
                f"the storage serves at most {opens:g} opens/s",
                "the storage serves any number of opens/s",
            ),
            "system.client_bytes_per_s": limit(
                client, f"a node transfers at most {format_rate(client)}", "a node transfers at any rate"
            ),
        }
        if workload.checkpoint is not None:
            texts["system.write_bytes_per_s"] = f"the storage accepts at most {format_rate(written)} of writes"
    if workload.barrier:
        rate = system.network_bytes_per_s
        texts["system.network_bytes_per_s"] = limit(
            rate,
            f"a ring allreduce exchanges {format_size(workload.allreduce_bytes)} of gradients at {format_rate(rate)} "
            "per rank",
            "the allreduce costs only the wait for the last rank",
        )
    elif workload.checkpoint is not None and workload.checkpoint.plans:
        rate = system.network_bytes_per_s
        texts["system.network_bytes_per_s"] = limit(
            rate, f"plans of checkpoints travel at {format_rate(rate)}", "plans of checkpoints travel in no time"
        )
    return texts


def _guessed(workload: RankWorkload, question: Question) -> list[str]:
    lines = []
    if workload.bytes or workload.load_bytes:
        lines.append(
            f"page caches of the nodes deliver {percent(question.cached, 0)} of the bytes (cached=), and the storage "
            "delivers the rest"
        )
    if workload.header_requests is None and workload.first_opens:
        lines.append(
            "opening a file takes one read; set trace.posix=true in the measured run to record the number of reads"
        )
    if workload.bytes:
        lines.append(
            "each rank reads as much per batch as in the measured run, at offsets spread evenly over the files"
        )
        lines.append(
            "a producer waits for each request before it sends the next one; the requests of a batch are simulated "
            "as at most 4 visits to the storage"
        )
    if workload.in_order and workload.bytes:
        lines.append("readahead joins consecutive requests, up to one stripe")
    if question.files is None or question.samples is None:
        lines.append(
            f"the data set has {counted(workload.files, 'file')} and {workload.epoch_samples} samples "
            "per epoch, as in the "
            "measured run, unless files= and samples= set other values"
        )
    lines.append(
        "all ranks wait for each other in each step"
        if workload.barrier
        else "ranks do not wait for each other (train.allreduce_bytes=0)"
    )
    if workload.checkpoint is not None:
        lines += _guessed_saves(workload.checkpoint)
    if workload.global_batch:
        lines.append(
            "the samples of a global batch are divided evenly among the ranks, and the production time of a batch "
            "is proportional to its samples; the compute time does not change"
        )
    return lines


def _guessed_saves(saved: Checkpoint) -> list[str]:
    lines = ["all ranks that save a checkpoint start at the same time, while no rank reads"]
    if saved.flushed:
        lines.append(
            "the described write rate is that of durable writes; flushing takes one more request for each file of a "
            "rank"
        )
    if saved.job is not None:
        lines.append(
            "more ranks than the described job has are more data parallelism, which divides the same state; of fewer "
            "ranks than it has, the first ones save"
        )
    if saved.plans and saved.cached:
        lines.append(
            "plans are cached (checkpoint.plan_cache): each save but the first counts the plan of a rank alone"
        )
    elif saved.plans:
        lines.append(
            "the time of the plan of all ranks and the bytes of their plans are in proportion to the number of ranks; "
            "all plans pass the link of the coordinator, to it and back"
        )
    if saved.stall_s is not None:
        lines.append(
            f"a save in the background stops training for {format_duration(saved.stall_s)}, as measured, in proportion "
            "to the bytes of a rank, and then slows nothing"
        )
    return lines
