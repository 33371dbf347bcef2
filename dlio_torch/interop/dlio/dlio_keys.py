"""The keys of DLIO's workload files, with the reason for each key that a recipe cannot reproduce.

A key whose reason is empty is mapped by one of the modules beside this one.  ``*`` stands for the rest of a key.
"""

from __future__ import annotations

from collections.abc import Mapping
from fnmatch import fnmatchcase
from types import MappingProxyType

_OBJECTS = "object storage: this tool reads files; mount the bucket, and set dataset.root or dataset.path"
_CUSTOM = (
    "this is Python code of another benchmark; write a format and register it in the entry point group "
    "dlio_torch.formats"
)
_GENERATOR = "this key sets how the data are generated; the data do not depend on it"
_RUN_FOLDER = "checkpoints are written to the run directory; set checkpoint.root"
_NOT_READ = "DLIO does not read this key"
_MONITOR = "run this monitor alongside dlio_torch"
_KSM = "checkpoint payloads are written from one small buffer, so there are no pages to merge"
_NO_EFFECT = "this key has no effect with the other settings of this file"
_DALI = "this key applies to DALI's own readers"

_MAPPED = """
framework
model model.name model.type model.model_size_bytes model.model_size model.model_datatype model.optimizer_datatype
model.num_layers model.layer_parameters model.optimization_groups
model.parallelism.tensor model.parallelism.pipeline model.parallelism.data model.parallelism.zero_stage
model.tensor_parallelism model.pipeline_parallelism model.zero_stage
model.transformer.vocab_size model.transformer.hidden_size model.transformer.ffn_hidden_size
model.transformer.num_attention_heads model.transformer.num_kv_heads model.transformer.num_layers
transformer.vocab_size transformer.hidden_size transformer.ffn_hidden_size transformer.num_layers
transformer.num_attention_heads transformer.num_kv_heads
workflow.generate_data workflow.train workflow.evaluation workflow.checkpoint workflow.profiling
dataset.format dataset.data_folder dataset.num_files_train dataset.num_files_eval dataset.num_samples_per_file
dataset.record_length_bytes dataset.record_length_bytes_stdev dataset.record_length
dataset.record_length_stdev dataset.record_dims dataset.record_element_type
dataset.num_subfolders_train dataset.num_subfolders_eval dataset.enable_chunking dataset.chunk_size
dataset.compression dataset.compression_level dataset.keep_files
dataset.hdf5.chunk_dims dataset.hdf5.num_dset_per_record
dataset.parquet.columns dataset.parquet.row_group_size
reader.data_loader reader.batch_size reader.batch_size_eval reader.read_threads reader.prefetch_size
reader.file_shuffle reader.sample_shuffle reader.shuffle_size reader.transfer_size reader.pin_memory
reader.multiprocessing_context reader.read_type reader.file_access reader.odirect reader.computation_threads
train.epochs train.total_training_steps train.seed train.seed_change_epoch
evaluation.eval_after_epoch evaluation.epochs_between_evals
checkpoint.checkpoint_after_epoch checkpoint.epochs_between_checkpoints checkpoint.steps_between_checkpoints
checkpoint.time_between_checkpoints checkpoint.num_checkpoints_write checkpoint.num_checkpoints_read
checkpoint.num_checkpoints checkpoint.fsync checkpoint.type checkpoint.model_size checkpoint.model_datatype
checkpoint.optimizer_datatype checkpoint.optimization_groups checkpoint.num_layers checkpoint.layer_parameters
checkpoint.tensor_parallelism checkpoint.pipeline_parallelism
metric.au output.folder output.metric.exclude_start_steps profiling.profiler generator.num_workers
storage.storage_type storage.storage_root
"""

_TIMES = ("reader.preprocess_time", "train.computation_time", "evaluation.eval_time")
_PARTS = ("", "_stdev", ".mean", ".stdev", ".type", ".min", ".max", ".shape", ".scale", ".lam")

_REASONS = {
    "dataset.record_length_bytes_resize": "tensors contain the bytes that were read, not prepared bytes of this size",
    "dataset.record_length_resize": "tensors contain the bytes that were read, not prepared bytes of this size",
    "dataset.record_element_bytes": "this value follows from record_element_type",
    "dataset.file_prefix": "dlio_torch chooses the names of files",
    "dataset.generation_buffer_size": _GENERATOR,
    "dataset.parquet.generation_batch_size": _GENERATOR,
    "dataset.parquet.use_s3dlio_gen": _GENERATOR,
    "dataset.parquet.partition_by": "files are not divided by the values of a column",
    "dataset.parquet.read_mode": "set access.unit to choose between single samples and runs of consecutive samples",
    "dataset.hdf5.max_shape": "arrays have their final size and do not grow",
    "dataset.daos_*": _OBJECTS,
    "dataset.listing_validation_interval": "files are located by their names, not by listing folders",
    "dataset.skip_listing": "files are located by their names, not by listing folders",
    "reader.transformed_record_dims": "tensors contain the bytes that were read, not prepared bytes of this shape",
    "reader.transformed_record_element_type": "tensors contain the bytes that were read, not prepared bytes",
    "reader.dont_use_mmap": _DALI,
    "reader.data_loader_sampler": "this value follows from the data loader",
    "reader.data_loader_classname": _CUSTOM,
    "reader.reader_classname": _CUSTOM,
    "reader.checkpoint_folder": f"{_NOT_READ}; {_RUN_FOLDER}",
    "reader.data_loader_root": f"{_NOT_READ}; {_OBJECTS}",
    "reader.shuffle": f"{_NOT_READ}; sample_shuffle and file_shuffle set the order",
    "reader.seed": f"{_NOT_READ}; train.seed is the seed that DLIO reads",
    "reader.storage_*": _OBJECTS,
    "reader.protocol": _OBJECTS,
    "reader.endpoint_uris": _OBJECTS,
    "reader.load_balance_strategy": _OBJECTS,
    "storage.*": _OBJECTS,
    "generator.buffer_size": _GENERATOR,
    "workflow.debug": "this key makes DLIO wait for a debugger",
    "checkpoint.checkpoint_folder": _RUN_FOLDER,
    "checkpoint.checkpoint_mechanism": "this value follows from the framework",
    "checkpoint.checkpoint_mechanism_classname": _CUSTOM,
    "checkpoint.checkpoint_daos_*": _OBJECTS,
    "checkpoint.recovery_rank_shift": (
        "each rank restores the checkpoint that it saved; the page cache is dropped before"
    ),
    "checkpoint.recovery_after_steps": "a checkpoint is restored before the first step",
    "checkpoint.rank_sync": "ranks wait for each other in the next step's allreduce, not in the checkpoint",
    "checkpoint.mode": "every rank saves its share for any number of ranks; set checkpoint.files for part of a model",
    "checkpoint.randomize_tensor": "checkpoint payloads are random bytes",
    "checkpoint.ksm": _KSM,
    "checkpoint.ksm.*": _KSM,
    "output.log_file": "the files of a run directory have fixed names",
    "output.metric.exclude_end_steps": "no steps at the end are excluded",
    "profiling.iostat_devices": _MONITOR,
    "logging.*": "see the files of the run directory",
    "hydra.*": "this is a setting of Hydra",
}

KNOWN: Mapping[str, str] = MappingProxyType(
    {**dict.fromkeys([*_MAPPED.split(), *(time + part for time in _TIMES for part in _PARTS)], ""), **_REASONS}
)
"""Each known key, or pattern of keys, with the reason why it is not reproduced; empty if it is."""


def reason_of(key: str) -> str | None:
    """General reason why ``key`` is not reproduced; None if DLIO has no such key."""
    if key in KNOWN:
        return KNOWN[key] or _NO_EFFECT
    if key == "workload" or key in {name.partition(".")[0] for name in KNOWN}:
        return "the section is empty"
    patterns = [pattern for pattern in KNOWN if "*" in pattern and fnmatchcase(key, pattern)]
    # The longest pattern says most: reader.storage_* before reader.*.
    return KNOWN[max(patterns, key=len)] if patterns else None
