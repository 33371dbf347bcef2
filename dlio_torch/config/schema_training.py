"""Options of ``compute``, ``train`` and ``checkpoint``: the work of a rank between two reads."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from dlio_torch.config.opt import MOST_THREADS, opt

MOST_PLANNED = 4096
"""Upper limit for the number of ranks whose plans one process makes; they would take more memory than a node has."""


@dataclass(frozen=True)
class ComputeConfig:
    """Emulated compute, which replaces the model."""

    mode: Literal["sleep", "spin", "cuda", "none"] = opt(
        "sleep",
        "how the compute time passes; sleep: the process sleeps; spin: CPU threads are busy; cuda: the GPU is"
        " busy; none: no compute time",
    )
    step_s: float = opt(0.0, "mean compute time of a training step", unit="s", minimum=0)
    stdev_s: float = opt(0.0, "standard deviation of the compute time of a training step", unit="s", minimum=0)
    distribution: Literal["constant", "normal", "lognormal", "uniform", "gamma", "exponential"] = opt(
        "constant",
        "distribution of the compute time of a training step; exponential: no time is below mean minus stdev_s, and "
        "with stdev_s=0 it begins at 0",
    )
    threads: int = opt(1, "with mode=spin: threads that are busy during a step", minimum=1, maximum=MOST_THREADS)
    eval_step_s: float = opt(0.0, "mean compute time of an evaluation step", unit="s", minimum=0)
    preprocess_s: float = opt(
        0.0, "CPU time spent on each sample by the process or thread that reads it", unit="s", minimum=0
    )

    @property
    def emulated(self) -> bool:
        """Whether compute is emulated; otherwise a step takes 0 s, whatever ``step_s`` is."""
        return self.mode != "none"

    @property
    def emulated_step_s(self) -> float:
        """Mean seconds of compute of a training step."""
        return self.step_s if self.emulated else 0.0

    @property
    def emulated_eval_step_s(self) -> float:
        """Mean seconds of compute of an evaluation step."""
        return self.eval_step_s if self.emulated else 0.0


@dataclass(frozen=True)
class TrainConfig:
    """The training loop."""

    epochs: int = opt(1, "passes over the data", minimum=1)
    steps: int = opt(0, "steps per epoch; 0: as many as the data provide", minimum=0)
    batch_size: int = opt(1, "samples per batch", minimum=1)
    batch_scope: Literal["rank", "global"] = opt(
        "rank", "rank: batch_size counts the samples of one rank; global: it counts the samples of all ranks"
    )
    warmup_steps: int = opt(1, "number of warm-up steps at the start, which the figures leave out", minimum=0)
    device: Literal["cpu", "cuda"] = opt(
        "cpu",
        "cpu: batches stay in main memory; cuda: each batch is copied to the rank's GPU before compute, once "
        "even if several steps use it",
    )
    allreduce_bytes: int = opt(
        0,
        "size of the gradient that all ranks average by an allreduce in each step; 0: no gradient exchange",
        unit="B",
        minimum=0,
    )
    eval_every_epochs: int = opt(0, "evaluate after every n-th epoch; 0: never because of an epoch's end", minimum=0)
    eval_every_steps: int = opt(0, "evaluate after every n-th step; 0: never because of the number of steps", minimum=0)
    eval_ranks: Literal["all", "first"] = opt("all", "ranks that evaluate: all, or the first only")
    eval_steps: int = opt(0, "steps per evaluation; 0: as many as the data provide", minimum=0)
    eval_batch_size: int = opt(0, "samples per evaluation batch of a rank; 0: as in training", minimum=0)
    resume: str | None = opt(
        None,
        "run directory to resume: training continues after its last complete checkpoint, at the next "
        "sample; needs the same data, sample order and number of ranks; null: a new run",
    )
    min_au: float = opt(
        0.0, "lowest acceptable accelerator utilisation (0 to 1); a lower one gives exit code 4", minimum=0
    )


@dataclass(frozen=True)
class CheckpointFileConfig:
    """One file of a checkpoint."""

    name: str = opt("model", "file name; '{step}' is replaced by the step number")
    bytes: int = opt(0, "size of the file", unit="B", minimum=0)
    write_bytes: int = opt(0, "size of one write call; 0: one call for the whole file", unit="B", minimum=0)


StateType = Literal[
    "float64", "float32", "float16", "bfloat16", "int64", "int32", "int16", "int8", "uint8", "bool", "object"
]


@dataclass(frozen=True)
class CheckpointTensorConfig:
    """A tensor of a saved state, or several of the same shape and type."""

    name: str = opt("tensor", "key of the tensor; of several: of the first, the others get a number")
    shape: list[int] = opt([], "numbers of elements; with dtype=object: the number of bytes")
    dtype: StateType = opt("float32", "element type, as PyTorch names it; object: a value that is no tensor")
    count: int = opt(1, "number of tensors of this shape and type that follow each other", minimum=1)


@dataclass(frozen=True)
class TensorFlowConfig:
    """Files that TensorFlow's Saver writes besides the variables, whose size is checkpoint.state_bytes."""

    name: str = opt("model.ckpt-{step}", "prefix of the files of a checkpoint; '{step}' is replaced by the step number")
    sharded: bool = opt(
        True,
        "true: write to a temporary folder, then merge, as the Saver of a MonitoredTrainingSession does; "
        "false: write the final files directly",
    )
    index_bytes: int = opt(4096, "size of the .index file", unit="B", minimum=128)
    meta_bytes: int = opt(0, "size of the .meta file, which holds the graph", unit="B", minimum=0)
    graph_text_bytes: int = opt(
        0, "size of graph.pbtxt, written before the first checkpoint; 0: no such file", unit="B", minimum=0
    )
    graph_bytes: int = opt(
        0,
        "size of the graph in the event file, written twice, each time followed by meta_bytes; 0: no event file",
        unit="B",
        minimum=0,
    )


@dataclass(frozen=True)
class CheckpointConfig:
    """Checkpoints: content, interval, and the ranks that save."""

    layout: Literal["none", "files", "torch_save", "tensorflow", "dcp", "megatron_deepspeed", "safetensors"] = opt(
        "none",
        "none: no checkpoints; files: files of given sizes; torch_save: torch.save of the described model, of tensors "
        "or of a state of state_bytes; tensorflow: the files of TensorFlow's Saver; dcp: "
        "torch.distributed.checkpoint of the described model or of tensors; megatron_deepspeed: the files of "
        "Megatron-DeepSpeed for the described model; safetensors: its weights in Hugging Face's layout",
        former=("kind", {"torch": "torch_save"}),
    )
    root: str | None = opt(
        None,
        "folder of checkpoints, in which each run makes a folder of its own, <root>/<recipe>/<time>; null: in the run "
        "directory",
    )
    every_steps: int = opt(0, "save after every n-th step; 0: never because of the number of steps", minimum=0)
    every_epochs: int = opt(0, "save after every n-th epoch; 0: never because of an epoch's end", minimum=0)
    before_first: bool = opt(False, "save a checkpoint before the first step")
    after_last: bool = opt(False, "save a checkpoint after the last step, unless that step was already saved")
    files: list[CheckpointFileConfig] = opt([], "with layout=files: the files of a checkpoint, in the order of writing")
    tensors: list[CheckpointTensorConfig] = opt(
        [],
        "with layout=torch_save or dcp: the tensors of a checkpoint, in their order, where no model is described; each "
        "rank holds all of them",
    )
    state_bytes: int = opt(
        0,
        "size of one checkpoint; layout=torch_save: of model and optimizer state, 0: that of the described model; "
        "layout=tensorflow: of the variables",
        unit="B",
        minimum=0,
    )
    tensorflow: TensorFlowConfig = opt(TensorFlowConfig, "with layout=tensorflow: the files of a checkpoint")
    ranks: Literal["first", "all"] = opt(
        "first",
        "with layout=files, torch_save, tensorflow or safetensors: ranks that save: the first only, or all",
    )
    file_name: str = opt(
        "checkpoint-{step}.pt",
        "with layout=torch_save: file name; '{step}' is replaced by the step number, without it each checkpoint "
        "replaces the one before",
    )
    rename: bool = opt(
        True,
        "with layout=torch_save or files: write a file under a temporary name and rename it when it is complete; "
        "false: write it under its own name",
    )
    fsync: bool = opt(False, "flush each file to the device (fsync) before the next step")
    keep: int = opt(1, "number of newest checkpoints to keep; 0: all", minimum=0)
    planned_ranks: int = opt(
        8,
        "with layout=dcp, --dry-run and predict: number of ranks of the described job whose plans the library makes, "
        "to measure the cost of planning; a thousand ranks take minutes",
        minimum=1,
        maximum=MOST_PLANNED,
    )
    restore: bool = opt(False, "before the first step, the ranks that save read a checkpoint of the configured size")
    restore_read_bytes: int = opt(
        0,
        "with layout=files or tensorflow: size of one read call of a restore; 0: one call for a whole file",
        unit="B",
        minimum=0,
    )
    async_save: Literal["none", "thread", "process"] = opt(
        "none",
        "with layout=dcp: training waits until a save is complete (none), or only until the state is copied, which a "
        "thread or a process then writes; a save that is due earlier waits for the one before",
    )
    thread_count: int = opt(
        1, "with layout=dcp: threads of a rank that write, each its own file", minimum=1, maximum=MOST_THREADS
    )
    single_file_per_rank: bool = opt(
        True, "with layout=dcp: a thread writes one file; false: each tensor is a file of its own"
    )
    sync_files: bool = opt(True, "with layout=dcp: flush each file to the device (fsync), which fsync=true also does")
    plan_cache: bool = opt(
        False, "with layout=dcp: plan the first save only; later ones of the same tensors use its plan"
    )
    use_collectives: bool = opt(
        True,
        "with layout=dcp: one rank plans for all and describes all files; false: each rank for itself, so that other "
        "ranks cannot read its files",
    )
    pinned_staging: bool = opt(
        False,
        "with layout=dcp: the state is on the GPU, and async_save copies it to page-locked memory; needs "
        "train.device=cuda",
    )
    restore_ranks: int = opt(
        0,
        "with layout=dcp: number of ranks that read a checkpoint, which divide it among their data-parallel ranks; "
        "0: all",
        minimum=0,
    )
    restore_part: Literal["all", "model"] = opt(
        "all",
        "part of a checkpoint of a described model that a restore reads: all, or the model without the optimizer's "
        "state",
    )
    shard_bytes: int = opt(
        5_000_000_000,
        "with layout=safetensors: most bytes of tensors in a file; a larger tensor has a file of its own",
        unit="B",
        minimum=1,
    )
    consolidate: bool = opt(
        False,
        "with layout=safetensors and ranks=all: whole files are made of the parts that the ranks saved",
    )
    consolidate_ranks: Literal["first", "all"] = opt(
        "first",
        "with consolidate: ranks that make the whole files, the first alone or all, each some of the files",
    )
    consolidate_threads: int = opt(
        1, "with consolidate: threads that make the whole files", minimum=1, maximum=MOST_THREADS
    )
    mtbf_s: float = opt(
        0.0,
        "mean time between failures of the whole job, from which the share of time lost to saves and failures and "
        "the best interval follow; 0: not known, no such figures",
        unit="s",
        minimum=0,
    )
    restart_s: float = opt(
        0.0,
        "time to detect a failure and to start the job again, without reading the checkpoint; counts in the "
        "share of time lost to failures",
        unit="s",
        minimum=0,
    )
