"""Workload files of DLIO and MLPerf Storage become recipes; no key of them is lost on the way.

The texts are written here with the keys and figures that those projects publish.
"""

from __future__ import annotations

import dataclasses
import re
import sys
from pathlib import Path
from typing import Any

import pytest
from described_jobs import MLPERF_70B
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from dlio_torch import cli
from dlio_torch.checkpoint.job.saved_state import bytes_per_parameter
from dlio_torch.checkpoint.saves import checkpoint_bytes
from dlio_torch.config.compose import Composed, compose
from dlio_torch.config.resources import find
from dlio_torch.config.schema_model import ParallelConfig
from dlio_torch.config.yamlfile import parse_document
from dlio_torch.errors import ConfigError
from dlio_torch.formats.core.registry import available
from dlio_torch.interop.dlio import convert
from dlio_torch.interop.dlio.conversion import Converted
from dlio_torch.interop.dlio.dlio_keys import KNOWN, reason_of
from dlio_torch.interop.dlio.model import ModelShape
from dlio_torch.interop.dlio.training import interval

UNET3D = """\
model: {name: unet3d, type: cnn, model_size: 499153191}
framework: pytorch
workflow: {generate_data: False, train: True, checkpoint: True}
dataset:
  data_folder: data/unet3d/
  format: npz
  num_files_train: 168
  num_samples_per_file: 1
  record_length_bytes: 146600628
  record_length_bytes_stdev: 68341808
  record_length_bytes_resize: 2097152
reader: {data_loader: pytorch, batch_size: 7, read_threads: 4, file_shuffle: seed, sample_shuffle: seed}
train: {epochs: 5, computation_time: 0.323}
checkpoint: {checkpoint_folder: checkpoints/unet3d, checkpoint_after_epoch: 5, epochs_between_checkpoints: 2}
metric: {au: 0.90}
"""
RESNET50 = """\
model: {name: resnet50, type: cnn}
framework: tensorflow
workflow: {generate_data: False, train: True}
dataset: {num_files_train: 1024, num_samples_per_file: 1251, record_length_bytes: 114660.07, format: tfrecord}
train: {computation_time: 0.224, epochs: 5}
reader: {data_loader: tensorflow, read_threads: 8, computation_threads: 8, batch_size: 400, transfer_size: 262144}
metric: {au: 0.90}
"""
COSMOFLOW = """\
model: {name: cosmoflow}
framework: tensorflow
workflow: {generate_data: False, train: True}
dataset: {data_folder: data/cosmoflow, num_files_train: 524288, num_samples_per_file: 1, format: tfrecord,
  record_length_bytes: 2828486, record_length_bytes_stdev: 71311}
reader: {data_loader: tensorflow, read_threads: 4, batch_size: 1, file_shuffle: seed, sample_shuffle: seed,
  shuffle_size: 2}
train: {epochs: 5, computation_time: 0.00350}
metric: {au: 0.70}
"""
BERT = """\
model: bert
framework: tensorflow
workflow: {generate_data: False, train: True, debug: False, checkpoint: True}
dataset: {data_folder: data/bert, format: tfrecord, num_files_train: 500, num_samples_per_file: 313532,
  record_length: 2500, file_prefix: part}
train: {seed_change_epoch: False, computation_time: 0.968, total_training_steps: 1000}
reader: {data_loader: tensorflow, read_threads: 1, computation_threads: 1, transfer_size: 262144, batch_size: 48,
  file_shuffle: seed, sample_shuffle: seed}
checkpoint: {checkpoint_folder: checkpoints/bert, steps_between_checkpoints: 250, model_size: 4034713312}
"""
DEFAULT = """\
model: default
framework: pytorch
workflow: {generate_data: False, train: True, evaluation: True, profiling: False}
dataset: {data_folder: data/default, format: dlio_npz, num_files_train: 64, num_files_eval: 8, num_samples_per_file: 1,
  record_length: 4096, num_subfolders_train: 2, num_subfolders_eval: 2}
reader: {data_loader: dlio_pytorch, batch_size: 4, batch_size_eval: 1}
train: {epochs: 10, computation_time: 1.00}
evaluation: {eval_time: 0.5, epochs_between_evals: 1}
profiling: {profiler: iostat}
"""
DLRM = """\
model: {name: dlrm}
framework: pytorch
workflow: {generate_data: False, train: True, do_eval: True}
dataset: {data_folder: data/dlrm, format: indexed_binary, num_files_train: 1, num_files_eval: 1,
  num_samples_per_file: 4195198976, record_length: 327680, keep_files: True, eval_num_samples_per_file: 91681240}
reader: {data_loader: pytorch, batch_size: 2048, batch_size_eval: 16384, sample_shuffle: random}
train: {epochs: 1, computation_time: 0.064296, total_training_steps: 32768, total_eval_steps: 2048}
evaluation: {eval_time: 0.0843, steps_between_evals: 16384}
"""
FLUX = """\
model: {name: flux}
framework: pytorch
workflow: {generate_data: False, train: True, checkpoint: False}
dataset:
  data_folder: data/flux/
  format: parquet
  compression: none
  num_files_train: 4296
  num_samples_per_file: 288
  record_length: 2164832
  parquet:
    row_group_size: 96
    columns:
      - {name: t5_encodings, dtype: float32, size: 524328}
      - {name: clip_encodings, dtype: float32, size: 409}
      - {name: skipped, dtype: int8, read: false}
      - {name: timestamp, dtype: float32, size: 1}
reader: {data_loader: pytorch, batch_size: 48, read_threads: 8, file_shuffle: seed}
train: {epochs: 1, computation_time: 1.35}
"""
RETINANET = """\
model: {name: retinanet, type: cnn}
framework: pytorch
workflow: {generate_data: False, train: True, checkpoint: False}
dataset: {data_folder: data/retinanet/, format: jpeg, num_files_train: 1743042, num_samples_per_file: 1,
  record_length_bytes: 153600, record_length_bytes_stdev: 51200}
reader: {data_loader: pytorch, batch_size: 16, read_threads: 8, file_shuffle: seed, sample_shuffle: seed}
train: {epochs: 5, computation_time: 0.210}
metric: {au: 0.85}
"""
MEGATRON = """\
model:
  name: megatron_deepspeed
  type: megatron_deepspeed
  optimization_groups: [1009254400, 865075200, 793600]
  model_size: 30102
  num_layers: 40
  parallelism: {pipeline: 8, tensor: 4, zero_stage: 1}
  layer_parameters: [52583936, 209715200]
framework: pytorch
workflow: {generate_data: False, train: True, checkpoint: True}
dataset: {data_folder: dataset/megatron-deepspeed/, format: mmap_indexed_binary, num_files_train: 1,
  num_samples_per_file: 277203535, record_length_bytes: 2048}
reader: {data_loader: pytorch, batch_size: 16, read_threads: 1, file_shuffle: seed, sample_shuffle: seed}
train: {epochs: 3, computation_time: 2.44, total_training_steps: 1000}
checkpoint: {checkpoint_folder: checkpoints/megatron-deepspeed, steps_between_checkpoints: 1000, type: all_ranks}
"""
LLAMA = """\
model:
  name: llama_{name}
  type: transformer
  num_layers: {layers}
  model_datatype: fp16
  optimizer_datatype: fp32
  parallelism: {{tensor: {tensor}, pipeline: {pipeline}, zero_stage: {zero}}}
  transformer: {{vocab_size: 128256, hidden_size: {hidden}, ffn_hidden_size: {ffn}, num_attention_heads: {heads},
    num_kv_heads: {kv}}}
framework: pytorch
workflow: {{generate_data: False, train: False, checkpoint: True}}
checkpoint: {{checkpoint_folder: checkpoints/llama, time_between_checkpoints: 5, num_checkpoints_write: 10,
  num_checkpoints_read: 10, fsync: True}}
"""
LLAMAS = {
    "8b": {"layers": 32, "tensor": 1, "pipeline": 1, "zero": 3, "hidden": 4096, "ffn": 14336, "heads": 32, "kv": 8},
    "70b": {"layers": 80, "tensor": 8, "pipeline": 1, "zero": 3, "hidden": 8192, "ffn": 28672, "heads": 128, "kv": 8},
    "405b": {"layers": 126, "tensor": 8, "pipeline": 32, "zero": 1, "hidden": 16384, "ffn": 53248, "heads": 128}
    | {"kv": 8},
    "1t": {"layers": 128, "tensor": 8, "pipeline": 64, "zero": 1, "hidden": 25872, "ffn": 98304, "heads": 192}
    | {"kv": 32},
}
DLIO_8B = {"vocab_size": 128256, "hidden_size": 4096, "ffn_hidden_size": 14336}
OBJECTS = UNET3D.replace("data/unet3d/", "s3://bucket/unet3d") + (
    "storage: {storage_type: s3, storage_root: bucket, storage_options: "
    "{access_key_id: AKIA, secret_access_key: hush, region: '${AWS_REGION}'}}\n"
)
WORKLOADS = {
    "unet3d": UNET3D,
    "resnet50": RESNET50,
    "cosmoflow": COSMOFLOW,
    "bert": BERT,
    "default": DEFAULT,
    "dlrm": DLRM,
    "flux": FLUX,
    "retinanet": RETINANET,
    "megatron": MEGATRON,
    "objects": OBJECTS,
    "nothing": "",
    "datagen": UNET3D.replace("train: True, checkpoint: True", "train: False, checkpoint: False"),
    "short": UNET3D.replace("num_files_train: 168", "num_files_train: 3"),
} | {f"llama_{name}": LLAMA.format(name=name, **values) for name, values in LLAMAS.items()}


def converted(text: str, **options: Any) -> Converted:
    return convert(parse_document(text, "workload.yaml"), find(Path.cwd(), {}), **options)


def composed(text: str, tmp_path: Path, *args: str, **options: Any) -> Composed:
    """The configuration that the recipe of a workload gives, as published unless ``args`` say otherwise."""
    (tmp_path / "recipe.yaml").write_text(converted(text, **options).text, encoding="utf-8")
    return compose(["recipe=recipe.yaml", *(args or ("scale=paper",))], cwd=tmp_path, environ={}, formats=available())


def reader(**keys: Any) -> str:
    """A workload with these keys of ``reader`` beside a usual rest."""
    inside = ", ".join(f"{name}: {value}" for name, value in {"data_loader": "pytorch", **keys}.items())
    return (
        "framework: pytorch\ndataset: {format: hdf5, num_files_train: 8, num_samples_per_file: 10, "
        f"record_length_bytes: 64}}\nreader: {{{inside}}}\n"
    )


def reasons(made: Converted) -> dict[str, str]:
    return {item.key: item.reason for item in made.not_honoured}


# --- every workload ------------------------------------------------------------------------------


@pytest.mark.parametrize("name", WORKLOADS)
@pytest.mark.parametrize("scale", ["laptop", "tiny", "paper"])
def test_a_workload_becomes_a_recipe_that_composes(name: str, scale: str, tmp_path: Path) -> None:
    for world_size in (1, 2):
        (tmp_path / "recipe.yaml").write_text(converted(WORKLOADS[name]).text, encoding="utf-8")
        args = ["recipe=recipe.yaml", f"scale={scale}"]
        made = compose(args, cwd=tmp_path, environ={}, formats=available(), world_size=world_size)
        data, batch = made.config.dataset, made.config.train.batch_size
        if scale != "paper" and made.config.access.tail == "drop":
            assert data.num_files * data.samples_per_file >= world_size * batch or data.format == "synthetic"


def test_no_key_is_dropped_silently() -> None:
    """Each key stands in a comment of the recipe, or in the list of those that it does not hold."""
    for text in WORKLOADS.values():
        made = converted(text)
        document = parse_document(text, "w")
        listed = {item.key for item in (*made.not_honoured, *made.unknown)}
        assert made.mapped + len(listed) == len(list(leaf_keys(document.tree)))
        for key in listed:
            assert f"{key}" in made.text[made.text.index("# Keys of the workload that are not in this recipe:") :]


def leaf_keys(node: dict[str, Any], prefix: str = "") -> Any:
    for name, value in node.items():
        if isinstance(value, dict) and value:
            yield from leaf_keys(value, f"{prefix}{name}.")
        else:
            yield f"{prefix}{name}"


@pytest.mark.parametrize("name", WORKLOADS)
def test_every_value_says_where_it_came_from(name: str) -> None:
    body = converted(WORKLOADS[name]).text.partition("\n\n# What is not")[0]
    for line in body.splitlines():
        if line and not line.startswith("#") and not re.fullmatch(r" *[a-z0-9_]+:", line):
            assert " # " in line, line


# --- what the keys become ------------------------------------------------------------------------


def test_unet3d(tmp_path: Path) -> None:
    config = composed(UNET3D, tmp_path).config
    data, loader, train, saved = config.dataset, config.loader, config.train, config.checkpoint
    assert (data.format, data.root, data.num_files, data.samples_per_file) == ("npz", "data/unet3d", 168, 1)
    (field,) = data.fields
    assert (field.dtype, field.shape, field.length_mean, field.length_stdev) == ("uint8", [], 146600628, 68341808)
    assert (config.access.order, config.access.partition, config.access.tail) == ("shuffled", "slices", "drop")
    # DLIO's default prefetch_size of 2, over four workers, rounded up.
    assert (loader.num_workers, loader.prefetch_factor, loader.persistent_workers) == (4, 1, True)
    assert (loader.max_open_files, loader.pin_memory) == (1, False)
    assert (train.epochs, train.batch_size, train.batch_scope, train.min_au) == (5, 7, "rank", 0.9)
    assert (config.compute.mode, config.compute.step_s) == ("sleep", 0.323)
    # One checkpoint, after epoch 5 of 5: every second epoch would be two others.
    assert (saved.layout, saved.every_epochs, saved.state_bytes, saved.ranks) == ("torch_save", 5, 499153191, "first")
    made = converted(UNET3D)
    assert set(reasons(made)) == {"dataset.record_length_bytes_resize", "checkpoint.checkpoint_folder"}
    assert made.unknown == ()
    assert "num_workers: 4                                 # reader.read_threads: worker processes" in made.text


def test_tfrecord_of_tensorflow_is_a_stream(tmp_path: Path) -> None:
    config = composed(COSMOFLOW, tmp_path).config
    access = config.access
    assert (access.pattern, access.partition, access.shard) == ("stream", "files", "before_shuffle")
    assert (access.order, access.interleave, access.shuffle_pool) == ("sequential", 4, 2)
    assert (config.loader.num_workers, config.loader.read_threads, config.loader.prefetch_batches) == (0, 1, 2)
    config = composed(RESNET50, tmp_path).config
    assert (config.access.order, config.access.shuffle_pool, config.access.interleave) == ("sequential", 0, 8)
    assert config.dataset.fields[0].shape == [114660]
    assert config.dataset.tfrecord.transfer_size == 262144
    assert reasons(converted(RESNET50)) == {
        "reader.computation_threads": "samples are preprocessed in the thread or process that reads them"
    }
    config = composed(RESNET50.replace("1024", "1"), tmp_path).config
    assert (config.access.partition, config.train.batch_size) == ("none", 400)  # every rank reads the one file
    torch = RESNET50.replace("tensorflow", "pytorch")
    config = composed(torch, tmp_path).config
    assert (config.access.pattern, config.dataset.tfrecord.index) == ("samples", True)
    assert any("DLIO refuses tfrecord" in text for text in converted(torch).differences)


def test_steps_that_the_data_do_not_give_are_left_out(tmp_path: Path) -> None:
    """DLIO takes the smaller of both numbers."""
    workload = (
        "framework: pytorch\ndataset: {{format: npz, num_files_train: 8, num_samples_per_file: 2}}\n"
        "reader: {{data_loader: pytorch, batch_size: 4}}\ntrain: {{total_training_steps: {steps}}}\n"
    )
    found = reasons(converted(workload.format(steps=100)))
    assert "the data provide 4 steps per epoch for 1 rank" in found["train.total_training_steps"]
    assert composed(workload.format(steps=100), tmp_path).config.train.steps == 0
    assert cli.main(["recipe=" + str(tmp_path / "recipe.yaml"), "scale=paper", "--dry-run"]) == 0
    assert "train.total_training_steps" not in reasons(converted(workload.format(steps=4)))
    assert composed(workload.format(steps=4), tmp_path).config.train.steps == 4
    few = reasons(converted(workload.format(steps=4), ranks=2))
    assert "the data provide 2 steps per epoch for 2 ranks" in few["train.total_training_steps"]


@pytest.mark.parametrize(("written", "cycle"), [("", 1), (", read_threads: 1", 1), (", read_threads: 5", 5)])
def test_num_parallel_reads_is_a_parallel_interleave_even_of_one_file(written: str, cycle: int, tmp_path: Path) -> None:
    """TensorFlow 2.21, traced with ``TFRecordDataset(num_parallel_reads=N)``: 3N files are opened by 3N threads."""
    text = COSMOFLOW.replace(", read_threads: 4", written)
    access = composed(text, tmp_path).config.access
    assert (access.interleave, access.interleave_prefetch, access.interleave_buffer) == (cycle, 2 * cycle, 2)
    assert not any("overlap" in line or "read_threads" in line for line in converted(text).report())


# Recipe -> the workload that it follows, and its variant.
SHIPPED = {"resnet50": (RESNET50, "h100"), "mlperf_cosmoflow": (COSMOFLOW, "h100"), "bert": (BERT, "v100")}


@pytest.mark.parametrize("name", SHIPPED)
def test_a_shipped_recipe_reads_tfrecord_files_as_its_workload_does(name: str, tmp_path: Path) -> None:
    text, accelerator = SHIPPED[name]
    imported = composed(text, tmp_path).config
    shipped = compose([f"recipe={name}", "scale=paper", f"accelerator={accelerator}"], environ={}).config
    assert shipped.access == imported.access
    assert shipped.loader == imported.loader
    assert shipped.train.batch_size == imported.train.batch_size


def test_no_parallel_reads_at_all_are_none_that_tensorflow_takes(tmp_path: Path) -> None:
    text = COSMOFLOW.replace("read_threads: 4", "read_threads: 0")
    assert composed(text, tmp_path).config.access.interleave_prefetch == 2
    assert any("TensorFlow refuses num_parallel_reads=0" in line for line in converted(text).differences)
    with pytest.raises(ConfigError, match=r"access\.interleave_prefetch=80000"):
        converted(COSMOFLOW.replace("read_threads: 4", "read_threads: 40000"))


@pytest.mark.parametrize("name", ["resnet50", "cosmoflow", "bert"])
@pytest.mark.parametrize("scale", ["laptop", "tiny"])
def test_each_of_two_ranks_has_the_files_that_it_begins(name: str, scale: str, tmp_path: Path) -> None:
    config = composed(WORKLOADS[name], tmp_path, f"scale={scale}").config
    assert config.dataset.num_files >= 2 * (config.access.interleave + config.access.interleave_prefetch)


@pytest.mark.parametrize("kind", ["tensorflow", "native_dali"])
@pytest.mark.parametrize("shuffle", ["seed", "random"])
def test_a_shuffle_of_tfrecord_files_has_no_effect_in_dlio(kind: str, shuffle: str, tmp_path: Path) -> None:
    """``tf.data.Dataset.list_files(files, shuffle=False)`` delivers a permuted list in the order of names."""
    text = COSMOFLOW.replace("file_shuffle: seed", f"file_shuffle: {shuffle}")
    text = text.replace("data_loader: tensorflow", f"data_loader: {kind}")
    access = composed(text, tmp_path).config.access
    assert (access.order, access.shard, access.shuffle_pool) == ("sequential", "before_shuffle", 2)
    made = converted(text)
    assert "no effect in DLIO" in reasons(made)["reader.file_shuffle"]
    assert not any("draws a new order" in line for line in made.differences)


def test_tfrecord_of_dali_is_read_by_one_thread(tmp_path: Path) -> None:
    text = COSMOFLOW.replace("data_loader: tensorflow", "data_loader: native_dali")
    access = composed(text, tmp_path).config.access
    assert (access.pattern, access.interleave, access.interleave_prefetch, access.interleave_buffer) == (
        "stream",
        1,
        0,
        0,
    )
    assert "has one thread" in reasons(converted(text))["reader.read_threads"]


def test_old_names_of_keys_are_read(tmp_path: Path) -> None:
    config = composed(BERT, tmp_path).config
    assert config.dataset.fields[0].shape == [2500]
    assert (config.train.steps, config.checkpoint.every_steps) == (1000, 250)
    assert config.checkpoint.layout == "files"  # TensorFlow does not save through torch
    assert config.checkpoint.files[0].bytes == 4034713312
    config = composed(DEFAULT, tmp_path).config  # dlio_npz, dlio_pytorch
    assert (config.dataset.format, config.loader.num_workers) == ("npz", 1)
    nested = "workload:\n" + "".join(f"  {line}\n" for line in UNET3D.splitlines())
    assert composed(nested, tmp_path).config == composed(UNET3D, tmp_path).config
    old = UNET3D.replace("reader:", "data_reader:")
    assert composed(old, tmp_path).config == composed(UNET3D, tmp_path).config


def test_both_names_of_a_key_are_a_note() -> None:
    made = converted(UNET3D.replace("  record_length_bytes: 146600628", "  record_length_bytes: 4\n  record_length: 5"))
    assert reasons(made)["dataset.record_length"] == "dataset.record_length_bytes is given too and takes precedence"


def test_evaluation(tmp_path: Path) -> None:
    config = composed(DEFAULT, tmp_path).config
    assert (config.dataset.num_files_eval, config.dataset.samples_per_file_eval) == (8, 1)
    assert (config.train.eval_every_epochs, config.train.eval_batch_size, config.compute.eval_step_s) == (1, 1, 0.5)
    assert config.dataset.num_subfolders == 2
    none = converted(DEFAULT.replace("num_files_eval: 8, ", ""))
    assert "there are no data for an evaluation" in reasons(none)["workflow.evaluation"]
    off = converted(DEFAULT.replace("evaluation: True", "evaluation: False"))
    assert reasons(off)["evaluation.eval_time"] == "workflow.evaluation is off"
    late = converted(DEFAULT.replace("epochs_between_evals: 1", "epochs_between_evals: 1, eval_after_epoch: 3"))
    assert "from epoch 1 on" in reasons(late)["evaluation.eval_after_epoch"]


def test_columns_of_a_table(tmp_path: Path) -> None:
    data = composed(FLUX, tmp_path).config.dataset
    assert [(field.name, field.shape) for field in data.fields] == [
        ("t5_encodings", [524328]),
        ("clip_encodings", [409]),
        ("timestamp", []),
    ]
    assert (data.parquet.row_group_samples, data.parquet.compression) == (96, "none")
    assert (
        "3 columns are written; the 1 columns with read: false" in reasons(converted(FLUX))["dataset.parquet.columns"]
    )
    assert "DLIO reads samples by number" in reasons(converted(FLUX))["reader.file_shuffle"]


def test_images_have_the_published_size(tmp_path: Path) -> None:
    data = composed(RETINANET, tmp_path).config.dataset
    assert data.fields[0].shape == [554, 554, 3]
    assert (data.image.file_bytes, data.image.file_bytes_stdev) == (153600, 51200)
    many = RETINANET.replace("num_samples_per_file: 1", "num_samples_per_file: 4")
    assert composed(many, tmp_path).config.dataset.samples_per_file == 1
    assert "dataset.num_samples_per_file" in reasons(converted(many))


@pytest.mark.parametrize("form", ["hdf5", "hdf5_opt", "csv", "npz", "npy", "png", "synthetic", "parquet", "tfrecord"])
def test_each_format(form: str, tmp_path: Path) -> None:
    text = f"dataset: {{format: {form}, num_files_train: 4, num_samples_per_file: 3, record_length_bytes: 1024}}\n"
    data = composed(text, tmp_path).config.dataset
    assert data.format == ("hdf5" if form == "hdf5_opt" else form)
    assert data.npz.sample_axis == ("last" if form == "npz" else "first")
    uneven = converted(text.replace("1024", "1024, record_length_bytes_stdev: 100"))
    assert ("dataset.record_length_bytes_stdev" in reasons(uneven)) == (form in ("csv", "synthetic"))


def test_binary_access(tmp_path: Path) -> None:
    assert composed(DLRM, tmp_path).config.dataset.binary.access == "file"
    assert composed(MEGATRON, tmp_path).config.dataset.binary.access == "mmap"


def test_hdf5_chunks_and_codecs(tmp_path: Path) -> None:
    base = "dataset: {format: hdf5, num_files_train: 2, %s}\n"
    data = composed(base % "enable_chunking: True, chunk_size: 4096, compression: gzip, compression_level: 3", tmp_path)
    hdf5 = data.config.dataset.hdf5
    assert (hdf5.chunk_bytes, hdf5.compression, hdf5.compression_level) == (4096, "gzip", 3)
    assert composed(base % "compression: lzf", tmp_path).config.dataset.hdf5.chunk_bytes == 65536
    assert reasons(converted(base % "compression: bz2"))["dataset.compression"].startswith("format hdf5 has no codec")
    assert "enable_chunking" in reasons(converted(base % "chunk_size: 4096"))["dataset.chunk_size"]
    text = base % "record_dims: [8, 16, 16], record_element_type: float32, hdf5: {chunk_dims: [4, 16, 16]}"
    (field,) = composed(text, tmp_path).config.dataset.fields
    assert (field.dtype, field.shape, field.chunk) == ("float32", [8, 16, 16], [1, 4, 16, 16])
    fields = composed(base % "record_dims: [8, 16], hdf5: {num_dset_per_record: 2}", tmp_path).config.dataset.fields
    assert [field.shape for field in fields] == [[4, 16], [4, 16]]


@pytest.mark.parametrize(
    ("time", "kind", "mean", "stdev"),
    [
        ("2.5", "constant", 2.5, 0.0),
        ("{mean: 2.0}", "constant", 2.0, 0.0),
        ("{mean: 2.0, stdev: 0.5}", "normal", 2.0, 0.5),
        ("{mean: 2.0, stdev: 0.5, type: normal}", "normal", 2.0, 0.5),
        ("{min: 0, max: 3, type: uniform}", "uniform", 1.5, 0.8660254),
        ("{shape: 4, scale: 0.5, type: gamma}", "gamma", 2.0, 1.0),
        ("{scale: 0.5, type: exponential}", "exponential", 0.5, 0.0),
        ("{lam: 4, type: poisson}", "normal", 4.0, 2.0),
        ("{mean: 0, stdev: 1}", "constant", 0.0, 0.0),
        ("{}", "constant", 0.0, 0.0),
    ],
)
def test_times_and_their_distributions(time: str, kind: str, mean: float, stdev: float, tmp_path: Path) -> None:
    compute = composed(f"train: {{computation_time: {time}}}\n", tmp_path).config.compute
    assert (compute.distribution, compute.step_s) == (kind, mean)
    assert compute.stdev_s == pytest.approx(stdev)


def test_parts_of_a_time_that_have_no_place_are_listed() -> None:
    made = converted("train: {computation_time: {mean: 1, lam: 3, type: poisson, speed: 4}}\n")
    assert "does not belong to a distribution" in reasons(made)["train.computation_time.mean"]
    assert "replaces the Poisson distribution" in reasons(made)["train.computation_time.type"]
    assert [item.key for item in made.unknown] == ["train.computation_time.speed"]
    made = converted(reader(preprocess_time="{mean: 0.5, stdev: 0.1}", preprocess_time_stdev=2))
    assert "reader.preprocess_time.stdev" in reasons(made)
    assert "reader.preprocess_time.mean" not in reasons(made)


def test_torch_workers(tmp_path: Path) -> None:
    loader = composed(reader(read_threads=2, prefetch_size=5, multiprocessing_context="spawn"), tmp_path).config.loader
    assert (loader.num_workers, loader.prefetch_factor, loader.multiprocessing_context) == (2, 3, "spawn")
    assert composed(reader(read_threads=2, prefetch_size=0), tmp_path).config.loader.prefetch_factor == 2
    alone = reader(read_threads=0, prefetch_size=4, multiprocessing_context="spawn", pin_memory="True")
    loader = composed(alone, tmp_path).config.loader
    assert (loader.num_workers, loader.prefetch_factor, loader.multiprocessing_context) == (0, None, None)
    assert loader.pin_memory
    assert {"reader.prefetch_size", "reader.multiprocessing_context"} <= set(reasons(converted(alone)))


def test_other_loaders(tmp_path: Path) -> None:
    config = composed(reader(data_loader="dali", read_threads=4, prefetch_size=3), tmp_path).config
    assert (config.loader.num_workers, config.loader.read_threads, config.loader.prefetch_batches) == (0, 4, 3)
    assert composed(reader(data_loader="synthetic"), tmp_path).config.dataset.format == "synthetic"
    memory = reader(read_type="memory", read_threads=4)
    config = composed(memory, tmp_path).config
    assert (config.loader.in_memory, config.loader.num_workers) == (True, 0)
    assert "before training" in reasons(converted(memory))["reader.read_threads"]


def test_orders(tmp_path: Path) -> None:
    assert composed(reader(sample_shuffle="random"), tmp_path).config.access.order == "shuffled"
    assert composed(reader(sample_shuffle="off"), tmp_path).config.access.order == "sequential"
    assert composed(reader(file_shuffle="seed"), tmp_path).config.access.order == "sequential"
    single = reader(file_shuffle="seed").replace("num_samples_per_file: 10", "num_samples_per_file: 1")
    assert composed(single, tmp_path).config.access.order == "shuffled"
    seeded = reader(sample_shuffle="seed") + "train: {seed: 7, seed_change_epoch: False}\n"
    assert composed(seeded, tmp_path).config.seed == 7
    assert reasons(converted(seeded))["train.seed_change_epoch"] == "every epoch has its own order"


def test_a_batch_of_more_samples_than_there_are(tmp_path: Path) -> None:
    assert composed(WORKLOADS["short"], tmp_path).config.access.tail == "pad"
    assert any("DLIO takes no step" in text for text in converted(WORKLOADS["short"]).differences)


def test_results_and_profiles(tmp_path: Path) -> None:
    text = (
        "workflow: {profiling: True}\nprofiling: {profiler: tensorboard}\n"
        "output: {folder: results, log_file: x.log, metric: {exclude_start_steps: 3, exclude_end_steps: 1}}\n"
    )
    config = composed(text, tmp_path).config
    assert (config.output.root, config.train.warmup_steps, config.trace.profiler) == ("results", 3, True)
    assert set(reasons(converted(text))) == {"output.log_file", "output.metric.exclude_end_steps"}
    assert not composed(text.replace("tensorboard", "iostat"), tmp_path).config.trace.profiler


def test_storage(tmp_path: Path) -> None:
    local = "dataset: {data_folder: unet3d/}\nstorage: {storage_type: local_fs, storage_root: /mnt/%s}\n"
    assert composed(local % "fast", tmp_path).config.dataset.root == "/mnt/fast/unet3d"
    refers = "dataset: {data_folder: '${storage.storage_root}/train'}\nstorage: {storage_root: 'file:///mnt/a'}\n"
    assert composed(refers, tmp_path).config.dataset.root == "/mnt/a/train"
    made = converted(OBJECTS)
    assert "s3 storage is read through a file system" in reasons(made)["storage.storage_type"]
    assert "object storage" in reasons(made)["dataset.data_folder"]
    assert composed(OBJECTS, tmp_path).config.dataset.root == "data"


def test_secrets_are_not_repeated() -> None:
    made = converted(OBJECTS)
    assert "storage.storage_options.secret_access_key" in made.text
    assert "hush" not in made.text
    assert "AKIA" not in "".join(made.report())


def test_references_that_lead_nowhere_are_listed() -> None:
    for text in ("${oc.env:HOME}", "${nope.nothing}", "${dataset.data_folder}", "${dataset", "${dataset.format}x${y}"):
        made = converted(f"dataset: {{data_folder: '{text}', format: npz}}\n")
        assert "not in this file" in reasons(made)["dataset.data_folder"]
        assert "  root:" not in made.text


# --- checkpoints ---------------------------------------------------------------------------------


def test_checkpoints_alone(tmp_path: Path) -> None:
    config = composed(WORKLOADS["llama_70b"], tmp_path, ranks=64).config
    assert (config.dataset.format, config.train.steps, config.compute.step_s) == ("synthetic", 10, 5.0)
    assert (config.access.partition, config.system.world_size) == ("none", 64)
    saved = config.checkpoint
    assert (saved.layout, saved.every_steps, saved.fsync, saved.restore) == ("megatron_deepspeed", 1, True, True)
    assert saved.keep == 0
    assert config.model == dataclasses.replace(MLPERF_70B, dtype="float16", master_weights=True)
    assert config.parallel == ParallelConfig(tensor=8, data=8, zero=3)
    made = converted(WORKLOADS["llama_70b"], ranks=64)
    assert any("the verb `run` reads one checkpoint" in text for text in made.differences)
    assert made.words == ("checkpoint", "saves=10", "loads=10")
    assert made.command("mine.yaml") == "python -m dlio_torch checkpoint recipe=./mine.yaml saves=10 loads=10"
    # The tiny scale leaves out layers.
    small = composed(WORKLOADS["llama_70b"], tmp_path, "scale=tiny", ranks=64).config.model
    assert (small.num_layers, small.hidden_size) == (1, 8192)


@pytest.mark.parametrize(
    ("name", "ranks", "gib"),
    # MLPerf Storage v2.0, Submission_guidelines, table 2: 105, 912 and 5,290 GB, which are GiB; the formula gives
    # 15,426 GiB for the fourth, where the table has 18 TB.
    [("8b", 8, 104.7), ("70b", 64, 911.2), ("405b", 512, 5292.2), ("1t", 1024, 15426.6)],
)
def test_the_sum_of_all_ranks_is_the_published_size(name: str, ranks: int, gib: float, tmp_path: Path) -> None:
    text = WORKLOADS[f"llama_{name}"]
    config = composed(text, tmp_path, ranks=ranks).config
    saved = sum(checkpoint_bytes(config, rank) for rank in range(ranks))
    noted = [difference(text) for text in converted(text, ranks=ranks).differences]
    assert (saved - sum(noted)) / 2**30 == pytest.approx(gib, abs=0.1)
    assert abs(sum(noted)) < 1e-3 * saved


def difference(text: str) -> int:
    """Bytes that all ranks save more than in DLIO, as a line says; 0 in another line."""
    match = re.search(r" bytes, ([+-]\d+) to DLIO's \d+: ", text)
    return int(match[1]) if match else 0


def test_the_bytes_of_each_rank_are_those_of_dlio_but_for_what_is_noted(tmp_path: Path) -> None:
    made = converted(WORKLOADS["llama_8b"], ranks=8)
    config = composed(WORKLOADS["llama_8b"], tmp_path, ranks=8).config
    shape = ModelShape(num_layers=32, data=8, zero_stage=3, **DLIO_8B)
    weights, optimizer = shape.saved_bytes()
    assert weights == 2 * shape.parameters == 2 * 8030261248
    assert {checkpoint_bytes(config, rank) for rank in range(8)} == {(weights + optimizer) // 8 - 60 * 4096}
    (line,) = [text for text in made.differences if difference(text)]
    assert line.startswith(
        f"all tensors of the optimizer have {12 * shape.parameters} bytes, {-8 * 60 * 4096} to DLIO's"
    )


@pytest.mark.parametrize(
    ("before", "after", "problem"),
    [
        ("tensor: 1", "tensor: 3", "cannot be divided equally among 3 ranks"),
        ("model_datatype: fp16", "model_datatype: int8", "model.dtype=int8"),
        ("zero_stage: 3", "zero_stage: 4", "parallel.zero=4"),
        ("num_attention_heads: 32", "num_attention_heads: 30", "model.num_kv_heads=8"),
    ],
)
def test_a_transformer_that_no_job_has_becomes_files_of_its_sizes(
    before: str, after: str, problem: str, tmp_path: Path
) -> None:
    text = WORKLOADS["llama_8b"]
    assert before in text
    made = converted(text.replace(before, after), ranks=24)
    assert any(problem in line and "files of DLIO's sizes" in line for line in made.differences), made.differences
    config = composed(text.replace(before, after), tmp_path, ranks=24).config
    assert config.checkpoint.layout == "files"
    assert not config.model.described


def test_fewer_ranks_than_the_job_save_a_part_of_it(tmp_path: Path) -> None:
    text = WORKLOADS["llama_405b"].replace("zero_stage: 1", "zero_stage: 1, data: 2")
    subset = text.replace("fsync: True", "fsync: True, mode: subset")
    config = composed(subset, tmp_path, ranks=8).config
    assert (config.system.world_size, config.parallel.world_size) == (8, 512)
    assert "checkpoint.mode" not in reasons(converted(subset, ranks=8))
    assert not any("numbers pipeline stages before" in line for line in converted(subset, ranks=8).differences)
    assert any("numbers pipeline stages before" in line for line in converted(subset, ranks=16).differences)
    assert "--ranks=N" in reasons(converted(subset))["checkpoint.mode"]


def test_more_ranks_than_a_file_says_divide_its_model(tmp_path: Path) -> None:
    text = WORKLOADS["llama_8b"].replace("zero_stage: 3", "zero_stage: 3, data: 1")
    assert composed(text, tmp_path, ranks=8).config.parallel.data == 8
    assert "several times" in reasons(converted(text, ranks=8))["model.parallelism.data"]
    assert composed(text, tmp_path).config.parallel.data == 1


@pytest.mark.parametrize(("kind", "states", "master"), [("fp32", 2, True), ("bf16", 3, False)])
def test_the_optimizer_has_three_tensors_of_its_type(kind: str, states: int, master: bool, tmp_path: Path) -> None:
    text = WORKLOADS["llama_8b"].replace("optimizer_datatype: fp32", f"optimizer_datatype: {kind}")
    model = composed(text, tmp_path, ranks=8).config.model
    assert (model.optimizer_states, model.master_weights) == (states, master)
    size = {"fp32": 4, "bf16": 2}[kind]
    assert bytes_per_parameter(model) == 2 + 3 * size


def test_layers_are_dealt_to_stages_without_gaps() -> None:
    for layers, stages in ((126, 32), (128, 64), (7, 3), (1, 1), (40, 8)):
        model = ModelShape(num_layers=layers, pipeline=stages, zero_stage=1)
        dealt = [layer for stage in range(stages) for layer in model.layers(stage)]
        assert dealt == list(range(layers + 3))


def test_ranks_of_a_model_that_does_not_say_how_many() -> None:
    assert any("--ranks=N" in text for text in converted(WORKLOADS["llama_8b"]).differences)
    assert not any("--ranks" in text for text in converted(WORKLOADS["llama_8b"], ranks=8).differences)
    with pytest.raises(ConfigError, match="does not divide the 12 ranks"):
        converted(WORKLOADS["llama_405b"], ranks=12)


def test_listed_layers_and_groups(tmp_path: Path) -> None:
    config = composed(MEGATRON, tmp_path).config
    saved = config.checkpoint
    assert (saved.every_steps, saved.ranks, config.system.world_size) == (1000, "all", 32)
    layers = [item.bytes for item in saved.files if item.name.startswith("layer")]
    assert layers == [(52583936 + 209715200) // 4] * 5
    assert saved.files[-1].bytes == 3 * (1009254400 + 865075200 + 793600)


def test_checkpoints_that_are_never_due_and_those_that_are_off(tmp_path: Path) -> None:
    late = UNET3D.replace("checkpoint_after_epoch: 5", "checkpoint_after_epoch: 9")
    assert composed(late, tmp_path).config.checkpoint.layout == "none"
    assert "no checkpoint is due" in reasons(converted(late))["checkpoint.checkpoint_after_epoch"]
    off = UNET3D.replace("checkpoint: True", "checkpoint: False")
    assert composed(off, tmp_path).config.checkpoint.layout == "none"
    assert reasons(converted(off))["model.model_size"] == "workflow.checkpoint is off"


def test_data_alone(tmp_path: Path) -> None:
    made = converted(WORKLOADS["datagen"])
    assert "the verb `generate` only writes the data" in reasons(made)["workflow.train"]
    assert composed(WORKLOADS["datagen"], tmp_path).config.dataset.num_files == 168


@given(st.integers(1, 12), st.integers(0, 6), st.integers(1, 12))
def test_an_interval_is_the_same_epochs_or_says_so(first: int, between: int, epochs: int) -> None:
    every, same = interval(first, between, epochs)
    wanted = list(range(first, epochs + 1, max(1, between)))
    got = list(range(every, epochs + 1, every)) if every else []
    assert same == (wanted == got)
    assert bool(wanted) == bool(every)


# --- what is wrong -------------------------------------------------------------------------------

WRONG = [
    ("dataset: 5\n", ["dataset=5 (workload.yaml:1): expected a group of keys"]),
    ("dataset: {num_files_train: many}\n", ["dataset.num_files_train=many (workload.yaml:1): expected a number"]),
    ("dataset: {num_files_train: 0}\n", ["must be at least 1"]),
    ("dataset: {num_files_train: 1.5}\n", ["expected a whole number"]),
    ("dataset: {num_files_train: [3]}\n", ["dataset.num_files_train=[3]", "expected a number"]),
    ("dataset: {num_files_train: {a: 3}}\n", ["dataset.num_files_train={...}", "expected a number"]),
    ("dataset: {num_files_train: 99999999999999999999}\n", ["too large"]),
    ("dataset: {record_length_bytes: .nan}\n", ["expected a number"]),
    ("dataset: {record_length_bytes: 1e999}\n", ["too large"]),
    ("dataset: {record_length_bytes: 4KiB}\n", ["write a plain number, without a unit"]),
    ("dataset: {format: hdf}\n", ["dataset.format=hdf (workload.yaml:1): unknown choice; did you mean hdf5?"]),
    ("dataset: {format: [hdf5]}\n", ["dataset.format=[hdf5]", "expected a text"]),
    ("dataset: {record_dims: 5}\n", ["expected a list of whole numbers"]),
    ("dataset: {record_dims: [0]}\n", ["every length must be at least 1"]),
    ("dataset: {format: hdf5, record_dims: [3], hdf5: {num_dset_per_record: 2}}\n", ["must divide the first"]),
    ("dataset: {format: parquet, parquet: {columns: 5}}\n", ["expected a list of groups"]),
    ("dataset: {format: parquet, parquet: {columns: [{name: a, size: -1}]}}\n", ["expected a whole number of elem"]),
    ("dataset: {format: parquet, parquet: {columns: [{name: a, dtype: x}]}}\n", ["write one of the types uint8"]),
    ("dataset: {format: parquet, parquet: {columns: [{name: a, read: no}]}}\n", ["no column is read"]),
    ("dataset: {format: parquet, parquet: {columns: [{name: a, nam: b}]}}\n", ["a column has an unknown key"]),
    ("dataset: {format: parquet, parquet: {columns: [{name: a}, {name: a}]}}\n", ["names must be unique"]),
    ("framework: jax\n", ["framework=jax (workload.yaml:1): unknown choice", "pytorch, tensorflow"]),
    ("reader: {data_loader: dataloader}\n", ["reader.data_loader=dataloader", "write one of tensorflow"]),
    ("reader: {batch_size: 0}\n", ["reader.batch_size=0", "must be at least 1"]),
    ("reader: {read_threads: -1}\n", ["reader.read_threads=-1", "must be at least 0"]),
    ("reader: {sample_shuffle: maybe}\n", ["write one of off, seed, random"]),
    ("workflow: {train: perhaps}\n", ["workflow.train=perhaps (workload.yaml:1): expected True or False"]),
    ("train: {computation_time: fast}\n", ["train.computation_time=fast", "expected a number"]),
    ("train: {computation_time: {type: weibull}}\n", ["train.computation_time.type=weibull", "unknown choice"]),
    ("train: {computation_time: {type: uniform, min: 3, max: 1}}\n", ["must be at least train.computation_time.min"]),
    ("metric: {au: 90}\n", ["metric.au=90", "write 0.9 for 90 %"]),
    ("workflow: {checkpoint: True}\nmodel: {num_layers: 99999999}\n", ["more layers or ranks than any model has"]),
    (
        "workflow: {checkpoint: True}\nmodel: {num_layers: 2, parallelism: {pipeline: 4}}\n",
        ["a pipeline stage needs a layer"],
    ),
    ("workflow: {checkpoint: True}\nmodel: {num_layers: 2, model_datatype: fp12}\n", ["write one of int8"]),
    ("- a\n- b\n", ["workload.yaml: expected 'key: value' lines"]),
    ("a: b: c\n", ["workload.yaml:1: malformed YAML"]),
    ("dataset: {format: !!python/object/apply:os.system ['true']}\n", ["tag", "is not allowed"]),
    ("dataset: !!set {a}\n", ["tag '!!set' is not allowed"]),
    ("model: a\nmodel: b\n", ["key 'model' appears twice"]),
    ("? [a, b]\n: c\n", ["a key must be a plain word"]),
    (
        "a: &a [x, x, x, x, x, x, x, x, x, x]\nb: &b [*a, *a, *a, *a, *a, *a, *a, *a, *a, *a]\n"
        "c: &c [*b, *b, *b, *b, *b, *b, *b, *b, *b, *b]\nd: &d [*c, *c, *c, *c, *c, *c, *c, *c, *c, *c]\n"
        "e: [*d, *d, *d, *d, *d, *d, *d, *d, *d, *d]\n",
        ["too many or too deeply nested values"],
    ),
    ("a: &a {b: *a}\n", ["workload.yaml"]),
]


@pytest.mark.parametrize(("text", "named"), WRONG, ids=[text[:48] for text, _ in WRONG])
def test_what_is_wrong_is_one_line(text: str, named: list[str]) -> None:
    with pytest.raises(ConfigError) as caught:
        converted(text)
    line = str(caught.value)
    assert "\n" not in line
    assert caught.value.hint
    for part in named:
        assert part in line


def test_unknown_keys() -> None:
    made = converted(DLRM)
    assert [item.key for item in made.unknown] == [
        "workflow.do_eval",
        "dataset.eval_num_samples_per_file",
        "train.total_eval_steps",
        "evaluation.steps_between_evals",
    ]
    assert "did you mean train.epochs?" in str(converted("train: {epoch: 5}\n").unknown[0])
    assert [item.key for item in converted("other: {a: 1, b: {c: [2]}}\n").unknown] == ["other.a", "other.b.c"]
    with pytest.raises(ConfigError, match=r"does not know these keys: workflow.do_eval \(line 3\), dataset.eval_num"):
        converted(DLRM, strict=True)
    assert converted(UNET3D, strict=True).unknown == ()


def test_a_key_is_known_by_one_pattern_at_most() -> None:
    assert all(reason_of(key) is not None for key in KNOWN if "*" not in key)
    assert reason_of("reader.storage_options.region")
    assert reason_of("reader.nothing") is None


KEYS = [key for key in KNOWN if "*" not in key]
SCALARS = st.one_of(
    st.integers(-3, 1 << 40).map(str),
    st.floats().map(repr),
    st.sampled_from(
        ["True", "off", "null", "seed", "pytorch", "tensorflow", "npz", "hdf5", "gzip", "[]", "{}", "[1, 2]"]
    ),
    st.text(st.characters(codec="utf-8"), max_size=8).map(repr),
)


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(st.dictionaries(st.sampled_from(KEYS), SCALARS, max_size=10))
def test_whatever_the_values_a_recipe_or_one_line(values: dict[str, str]) -> None:
    tree: dict[str, Any] = {}
    for key, value in values.items():
        *groups, name = key.split(".")
        node: Any = tree
        for group in groups:
            node = node.setdefault(group, {}) if isinstance(node, dict) else {}
        if isinstance(node, dict) and not isinstance(node.get(name), dict):
            node[name] = value
    text = "".join(lines(tree, 0))
    try:
        made = converted(text)
    except ConfigError:
        return  # which is one line, whatever its message holds
    total = made.mapped + len(made.not_honoured) + len(made.unknown)
    assert total == len(list(leaf_keys(parse_document(text, "w").tree)))
    parse_document(made.text, "recipe")


def lines(node: dict[str, Any], depth: int) -> Any:
    for name, value in node.items():
        if isinstance(value, dict):
            yield f"{'  ' * depth}{name}:\n"
            yield from lines(value, depth + 1)
        else:
            yield f"{'  ' * depth}{name}: {value}\n"


# --- the verb ------------------------------------------------------------------------------------


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    for name in ("RANK", "WORLD_SIZE", "LOCAL_RANK", "HOROVOD_RANK", "HOROVOD_SIZE", "DLIO_TORCH_PATH"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.chdir(tmp_path)
    (tmp_path / "unet3d_h100.yaml").write_text(UNET3D, encoding="utf-8")
    return tmp_path


def test_the_recipe_goes_to_the_terminal_and_the_list_to_stderr(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.main(["import-dlio", "unet3d_h100.yaml"]) == 0
    out, err = capsys.readouterr()
    assert out == convert(parse_document(UNET3D, "unet3d_h100.yaml"), find(folder, {})).text
    assert err.startswith("dlio_torch: unet3d_h100.yaml: 23 keys mapped, 2 not honoured, 0 unknown\n")
    assert "  not honoured: dataset.record_length_bytes_resize=2097152 (line 11): tensors contain" in err


@pytest.mark.parametrize("flags", [["--output", "mine.yaml"], ["--output=mine.yaml"]])
def test_an_imported_recipe_is_shown_and_planned(
    folder: Path, capsys: pytest.CaptureFixture[str], flags: list[str]
) -> None:
    assert cli.main(["import-dlio", "unet3d_h100.yaml", *flags]) == 0
    assert capsys.readouterr().out == ""
    assert sorted(path.name for path in folder.iterdir()) == ["mine.yaml", "unet3d_h100.yaml"]
    assert cli.main(["show", "recipe=./mine.yaml"]) == 0
    assert "  num_workers: 4                                 # ./mine.yaml:" in capsys.readouterr().out
    for scale in ("laptop", "tiny", "paper"):
        assert cli.main(["recipe=./mine.yaml", f"scale={scale}", "--dry-run"]) == 0
        assert "7 samples per rank and step" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("arguments", "code", "named"),
    [
        (["import-dlio"], 2, "exactly one workload file is needed; name one workload file: import-dlio FILE.yaml"),
        (["import-dlio", "a.yaml", "b.yaml"], 2, "exactly one workload file is needed"),
        (["import-dlio", "nope.yaml"], 2, "import-dlio nope.yaml (command line): there is no such file"),
        (["import-dlio", "."], 2, "is a folder"),
        (["import-dlio", "~nobody-of-this-name/a.yaml"], 2, "the path is not usable"),
        (["import-dlio", "unet3d_h100.yaml", "--output"], 2, "--output (command line): no value"),
        (["import-dlio", "unet3d_h100.yaml", "--output="], 2, "--output (command line): no value"),
        (["import-dlio", "unet3d_h100.yaml", "--output", "."], 2, "is a folder"),
        (["import-dlio", "unet3d_h100.yaml", "--output", "recipe"], 2, "the name of a recipe must end in .yaml"),
        (["import-dlio", "unet3d_h100.yaml", "--output", "./unet3d_h100.yaml"], 2, "is the workload file itself"),
        (["import-dlio", "unet3d_h100.yaml", "--output", "no/such.yaml"], 3, "cannot be written"),
        (["import-dlio", "unet3d_h100.yaml", "--ranks", "many"], 2, "--ranks many (command line)"),
        (["import-dlio", "unet3d_h100.yaml", "--ranks=0"], 2, "--ranks 0 (command line)"),
        (["show", "recipe=minimal", "--strict"], 2, "not a flag of show; use it with import-dlio"),
        (["recipe=minimal", "--output", "x"], 2, "not a flag of run"),
    ],
)
def test_mistakes_on_the_command_line(
    folder: Path, capsys: pytest.CaptureFixture[str], arguments: list[str], code: int, named: str
) -> None:
    assert cli.main(arguments) == code
    error = capsys.readouterr().err
    assert named in error
    assert error.count("\n") == 1
    assert [path.name for path in folder.iterdir()] == ["unet3d_h100.yaml"]


def test_checkpoints_alone_name_the_command_that_saves_and_loads(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (folder / "llama.yaml").write_text(WORKLOADS["llama_8b"], encoding="utf-8")
    assert cli.main(["import-dlio", "llama.yaml", "--ranks", "8", "--output", "mine.yaml"]) == 0
    command = "python -m dlio_torch checkpoint recipe=./mine.yaml saves=10 loads=10"
    assert capsys.readouterr().err.endswith(f"dlio_torch: run the recipe on 8 ranks with: {command}\n")
    assert "saves=10 loads=10" in (folder / "mine.yaml").read_text(encoding="utf-8").splitlines()[1]


def test_strict(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (folder / "dlrm.yaml").write_text(DLRM, encoding="utf-8")
    assert cli.main(["import-dlio", "--strict", "dlrm.yaml"]) == 2
    assert "dlrm.yaml: DLIO does not know these keys: workflow.do_eval (line 3)" in capsys.readouterr().err
    assert cli.main(["import-dlio", "dlrm.yaml"]) == 0
    assert "  unknown: workflow.do_eval=True (line 3): DLIO does not read this key" in capsys.readouterr().err


def test_torch_is_not_imported(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "torch", None)
    assert cli.main(["import-dlio", "unet3d_h100.yaml"]) == 0
