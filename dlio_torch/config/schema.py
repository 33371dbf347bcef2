"""Every option: its name, type, default, unit and one line of documentation.

The dotted path of a field (``loader.num_workers``) is its name everywhere: in YAML, on the command
line, in ``config.yaml`` of a run, as a CSV column and as the axis of a sweep.  A test asserts that
every option is documented and is read somewhere outside ``config/``.

Units are metadata.  A field of unit ``B`` accepts ``262144`` or ``"256KiB"``; of unit ``s`` it
accepts ``0.5`` or ``"500ms"``.  Below ``config/`` the rest of the package sees these frozen
dataclasses only.

All of them are imported from here; the groups stand, each with its options, in ``schema_dataset.py``,
``schema_reading.py``, ``schema_training.py`` and ``schema_run.py``.
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
from dlio_torch.config.schema_reading import (
    AccessConfig,
    CacheConfig,
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
    ComputeConfig,
    TensorFlowConfig,
    TrainConfig,
)

__all__ = [
    "AccessConfig",
    "CacheConfig",
    "CheckpointConfig",
    "CheckpointFileConfig",
    "ComputeConfig",
    "Config",
    "DatasetConfig",
    "DistConfig",
    "ExpectConfig",
    "FieldConfig",
    "GenerateConfig",
    "HorovodConfig",
    "LoaderConfig",
    "OnceConfig",
    "OutputConfig",
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

    recipe: str = opt("", "recipe name, or path of a recipe file")
    accelerator: str = opt("", "variant of the recipe, a name in its 'accelerators:'; empty: as the recipe stands")
    description: str = opt("", "what the recipe emulates, in one line")
    seed: int = opt(1, "seed of data, order and compute times", minimum=0)
    verify: bool = opt(False, "check every sample's content and how often it came")
    dataset: DatasetConfig = opt(DatasetConfig, "what is read")
    generate: GenerateConfig = opt(GenerateConfig, "how synthetic data are written")
    access: AccessConfig = opt(AccessConfig, "which samples, in which order, by which rank")
    loader: LoaderConfig = opt(LoaderConfig, "how batches are fetched")
    stage: StageConfig = opt(StageConfig, "a copy of the data near the ranks, made before they read")
    cache: CacheConfig = opt(CacheConfig, "what lies in the page cache when the training begins")
    storage: StorageConfig = opt(StorageConfig, "what the storage gives at the most")
    compute: ComputeConfig = opt(ComputeConfig, "what stands for the model")
    train: TrainConfig = opt(TrainConfig, "the loop")
    checkpoint: CheckpointConfig = opt(CheckpointConfig, "what is saved, when, by whom")
    dist: DistConfig = opt(DistConfig, "how ranks talk")
    trace: TraceConfig = opt(TraceConfig, "what is recorded beside the step times")
    output: OutputConfig = opt(OutputConfig, "where results go")
    system: SystemConfig = opt(SystemConfig, "the system of the published numbers, and of `predict`")
    scale: ScaleConfig = opt(ScaleConfig, "how much of the published amount is done")
    expect: list[ExpectConfig] = opt([], "published signature that a run is compared with")
