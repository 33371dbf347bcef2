"""Every option: its name, type, default, unit and one line of documentation.

The dotted path of a field (``loader.num_workers``) is its name everywhere: in YAML, on the command
line, in ``config.yaml`` of a run, as a CSV column and as the axis of a sweep.  A test asserts that
every option is documented and is read somewhere outside ``config/``.

Units are metadata.  A field of unit ``B`` accepts ``262144`` or ``"256KiB"``; of unit ``s`` it
accepts ``0.5`` or ``"500ms"``.  Below ``config/`` the rest of the package sees these frozen
dataclasses only.

All of them are imported from here; the groups stand, each with its options, in ``schema_dataset.py``,
``schema_reading.py``, ``schema_training.py``, ``schema_model.py`` and ``schema_run.py``.
"""

from __future__ import annotations

from dataclasses import dataclass

from dlio_torch.config.opt import opt
from dlio_torch.config.schema_dataset import (
    DatasetConfig,
    FieldConfig,
    GenerateConfig,
    OnceConfig,
)
from dlio_torch.config.schema_model import ModelConfig, ParallelConfig
from dlio_torch.config.schema_reading import (
    AccessConfig,
    CacheConfig,
    CacheGoal,
    LoaderConfig,
    StageConfig,
    StorageConfig,
)
from dlio_torch.config.schema_run import (
    DistConfig,
    ExpectConfig,
    HorovodConfig,
    OutputConfig,
    ScaleConfig,
    SystemConfig,
    TraceConfig,
)
from dlio_torch.config.schema_training import (
    CheckpointConfig,
    CheckpointFileConfig,
    CheckpointTensorConfig,
    ComputeConfig,
    TensorFlowConfig,
    TrainConfig,
)

__all__ = [
    "AccessConfig",
    "CacheConfig",
    "CacheGoal",
    "CheckpointConfig",
    "CheckpointFileConfig",
    "CheckpointTensorConfig",
    "ComputeConfig",
    "Config",
    "DatasetConfig",
    "DistConfig",
    "ExpectConfig",
    "FieldConfig",
    "GenerateConfig",
    "HorovodConfig",
    "LoaderConfig",
    "ModelConfig",
    "OnceConfig",
    "OutputConfig",
    "ParallelConfig",
    "ScaleConfig",
    "StageConfig",
    "StorageConfig",
    "SystemConfig",
    "TensorFlowConfig",
    "TraceConfig",
    "TrainConfig",
]


@dataclass(frozen=True)
class Config:
    """A complete experiment."""

    recipe: str = opt("", "recipe name (`ls recipes` lists them), or path of a recipe file")
    accelerator: str = opt(
        "", "variant of the recipe: a name in its 'accelerators:' block; empty: the recipe without a variant"
    )
    description: str = opt("", "one line that says which application the recipe emulates")
    seed: int = opt(1, "seed of the generated data, the sample order and the random compute times", minimum=0)
    verify: bool = opt(
        False, "compare each sample with its generated content, and count how often each sample is delivered"
    )
    dataset: DatasetConfig = opt(DatasetConfig, "the data set: format, number of files, arrays of a sample")
    generate: GenerateConfig = opt(GenerateConfig, "how synthetic data are written")
    access: AccessConfig = opt(AccessConfig, "which samples each rank reads, and in which order")
    loader: LoaderConfig = opt(LoaderConfig, "how batches are loaded: engine, workers, prefetching")
    stage: StageConfig = opt(
        StageConfig, "staging: a copy of the data on node-local storage, made before the ranks read"
    )
    cache: CacheConfig = opt(CacheConfig, "state of the page cache when training begins")
    storage: StorageConfig = opt(StorageConfig, "limits of the storage, with which a run is compared")
    compute: ComputeConfig = opt(ComputeConfig, "emulated compute, which replaces the model")
    train: TrainConfig = opt(TrainConfig, "training loop: epochs, steps, batches, evaluation")
    model: ModelConfig = opt(ModelConfig, "the model whose state the checkpoints hold: sizes, precision, optimizer")
    parallel: ParallelConfig = opt(ParallelConfig, "the ranks over which that job divides the model and the data")
    checkpoint: CheckpointConfig = opt(CheckpointConfig, "checkpoints: content, interval, and the ranks that save")
    dist: DistConfig = opt(DistConfig, "communication between ranks")
    trace: TraceConfig = opt(TraceConfig, "recordings besides the step times: spans, I/O calls, profiler")
    output: OutputConfig = opt(OutputConfig, "run directories and progress messages")
    system: SystemConfig = opt(
        SystemConfig, "system on which the published figures were measured, and the system that `predict` simulates"
    )
    scale: ScaleConfig = opt(ScaleConfig, "limits that shrink the published amount of data, steps and compute")
    expect: list[ExpectConfig] = opt([], "published figures, with which a run is compared")

    @property
    def cache_goal(self) -> CacheGoal:
        """The state of the page cache that ``cache.state`` asks for."""
        if self.cache.state != "auto":
            return self.cache.state
        # Files of a user are left alone, and an application that stages finds its fresh copies in memory.
        left = self.dataset.path is not None or self.stage.dir is not None or self.dataset.direct_io
        return "as_is" if left else "cold"
