"""Options of ``compute``, ``train`` and ``checkpoint``: what a rank does between two reads."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from dlio_torch.config.opt import MOST_THREADS, opt


@dataclass(frozen=True)
class ComputeConfig:
    """What stands for the model."""

    mode: Literal["sleep", "spin", "cuda", "none"] = opt("sleep", "how the step time is spent")
    step_s: float = opt(0.0, "mean compute time of a training step", unit="s", minimum=0)
    stdev_s: float = opt(0.0, "standard deviation of the step time", unit="s", minimum=0)
    distribution: Literal["constant", "normal", "lognormal", "uniform", "gamma", "exponential"] = opt(
        "constant", "distribution of the step time"
    )
    threads: int = opt(1, "threads that are busy during a step of mode=spin", minimum=1, maximum=MOST_THREADS)
    eval_step_s: float = opt(0.0, "mean compute time of an evaluation step", unit="s", minimum=0)
    preprocess_s: float = opt(0.0, "CPU time spent on each sample where it is read", unit="s", minimum=0)

    @property
    def emulated(self) -> bool:
        """Whether steps of the model are emulated; without that they take 0 s, whatever ``step_s`` says."""
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
    """The loop."""

    epochs: int = opt(1, "passes over the data", minimum=1)
    steps: int = opt(0, "steps of an epoch; 0: as many as the data give", minimum=0)
    batch_size: int = opt(1, "samples of a batch", minimum=1)
    batch_scope: Literal["rank", "global"] = opt("rank", "batch_size counts the samples of one rank, or of all ranks")
    warmup_steps: int = opt(1, "first steps that are left out of the figures", minimum=0)
    device: Literal["cpu", "cuda"] = opt(
        "cpu",
        "where a batch is used; cuda: it is copied to the rank's GPU before its compute, once also if it serves "
        "several steps",
    )
    allreduce_bytes: int = opt(0, "gradient that ranks reduce in each step; 0: none", unit="B", minimum=0)
    eval_every_epochs: int = opt(0, "evaluate after every n-th epoch; 0: never", minimum=0)
    eval_every_steps: int = opt(0, "evaluate after every n-th step; 0: never", minimum=0)
    eval_ranks: Literal["all", "first"] = opt("all", "which ranks evaluate")
    eval_steps: int = opt(0, "steps of an evaluation; 0: as many as the data give", minimum=0)
    eval_batch_size: int = opt(0, "samples of an evaluation batch of a rank; 0: as in training", minimum=0)
    resume: str | None = opt(
        None,
        "run directory after whose last complete checkpoint this run goes on, with the next sample; as many ranks, the "
        "same data and order",
    )
    min_au: float = opt(0.0, "least accelerator utilisation (0 to 1); below it the exit code is 4", minimum=0)


@dataclass(frozen=True)
class CheckpointFileConfig:
    """One file of a checkpoint."""

    name: str = opt("model", "file name; '{step}' is replaced by the step")
    bytes: int = opt(0, "size of the file", unit="B", minimum=0)
    write_bytes: int = opt(0, "size of one write call; 0: the whole file at once", unit="B", minimum=0)


@dataclass(frozen=True)
class TensorFlowConfig:
    """What TensorFlow's Saver writes beside the variables, whose size is checkpoint.state_bytes."""

    name: str = opt("model.ckpt-{step}", "prefix of the files of a checkpoint; '{step}' is replaced by the step")
    sharded: bool = opt(
        True, "as the Saver of a MonitoredTrainingSession: written in a folder of its own, then merged; or at once"
    )
    index_bytes: int = opt(4096, "size of the .index", unit="B", minimum=128)
    meta_bytes: int = opt(0, "size of the .meta, the graph", unit="B", minimum=0)
    graph_text_bytes: int = opt(
        0, "size of the graph.pbtxt, written before the first checkpoint; 0: none", unit="B", minimum=0
    )
    graph_bytes: int = opt(
        0, "size of the graph in the events, written twice, each time with the .meta; 0: no events", unit="B", minimum=0
    )


@dataclass(frozen=True)
class CheckpointConfig:
    """What is saved, when, by whom."""

    kind: Literal["none", "files", "torch", "tensorflow"] = opt(
        "none", "nothing, files of given sizes, torch.save of a state, or what TensorFlow's Saver writes"
    )
    every_steps: int = opt(0, "save after every n-th step; 0: not by step", minimum=0)
    every_epochs: int = opt(0, "save after every n-th epoch; 0: not by epoch", minimum=0)
    before_first: bool = opt(False, "save before the first step, too")
    after_last: bool = opt(False, "save after the last step, unless that was saved")
    files: list[CheckpointFileConfig] = opt([], "files of kind=files, in the order of writing")
    state_bytes: int = opt(
        0, "size of the state of kind=torch, or of the variables of kind=tensorflow", unit="B", minimum=0
    )
    tensorflow: TensorFlowConfig = opt(TensorFlowConfig, "files of kind=tensorflow")
    ranks: Literal["first", "all"] = opt("first", "which ranks save")
    fsync: bool = opt(False, "flush each file to the device before the next step")
    keep: int = opt(1, "newest checkpoints that are kept; 0: all", minimum=0)
    restore: bool = opt(False, "the saving ranks read a checkpoint of this size before the first step")
    restore_read_bytes: int = opt(0, "size of one read call of a restore; 0: a whole file at once", unit="B", minimum=0)
