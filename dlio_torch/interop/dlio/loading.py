"""Converts DLIO's section ``reader`` to ``access`` and ``loader``."""

from __future__ import annotations

import math

from dlio_torch.interop.dlio.recipe import Recipe
from dlio_torch.interop.dlio.workload import WorkloadFile
from dlio_torch.interop.dlio.workload_values import Value

FRAMEWORKS = ("pytorch", "tensorflow")
LOADERS = ("tensorflow", "pytorch", "dali", "native_dali", "custom", "none", "synthetic", "daos_pytorch")
_SHUFFLES = ("off", "seed", "random")
_TORCH = ("pytorch", "daos_pytorch", "custom", "none", "synthetic")


def loading(work: WorkloadFile, recipe: Recipe, form: str) -> None:
    """Converts the section for data of DLIO's format ``form``."""
    kind = _kind(work)
    threads = work.integer("reader.read_threads", default=1)
    ahead = work.integer("reader.prefetch_size", default=2)
    files = work.choice("reader.file_shuffle", choices=_SHUFFLES, default="off")
    samples = work.choice("reader.sample_shuffle", choices=_SHUFFLES, default="off")
    if form == "tfrecord" and kind.value not in _TORCH:
        _stream(work, recipe, kind, threads, files, samples)
    else:
        _numbers(work, recipe, files, samples)
    if form == "tfrecord" and kind.value in _TORCH:
        recipe.set("dataset.tfrecord.index", True, f"{kind.origin}: {kind.value} reads samples by number")
        recipe.differs("DLIO refuses tfrecord with torch's DataLoader; here an index makes single records accessible")
    if kind.value in _TORCH:
        _workers(work, recipe, threads, ahead)
    else:
        _threads(work, recipe, kind, threads, ahead, form)
    _rest(work, recipe, form)


def _kind(work: WorkloadFile) -> Value[str]:
    framework = work.choice("framework", choices=FRAMEWORKS, default="tensorflow")
    kind = work.choice("reader.data_loader", choices=LOADERS, default=framework.value)
    if kind.value in ("custom", "none"):
        work.note(kind.origin, "torch's DataLoader is used instead")
    elif kind.value == "daos_pytorch":
        work.note(kind.origin, "torch's DataLoader reads through a file system; mount the container with dfuse")
    elif kind.value in ("dali", "native_dali"):
        work.note(kind.origin, "DALI's readers are emulated by reader threads")
    return kind


def _numbers(work: WorkloadFile, recipe: Recipe, files: Value[str], samples: Value[str]) -> None:
    """Converts access by sample number: each rank permutes its contiguous slice of samples (get_global_map_index)."""
    recipe.set("access.partition", "slices", "DLIO gives each rank a contiguous slice of the samples")
    shuffled = samples.value != "off"
    if not shuffled and files.value != "off":
        if recipe.get("dataset.samples_per_file") == 1:
            samples, shuffled = files, True
        else:
            work.note(
                files.origin,
                "DLIO reads samples by number, in order; access.order=shuffled would permute samples, not files",
            )
    both = samples.value != "off" and files.value != "off"
    origin = f"{samples.origin}, {files.origin}" if both else samples.origin
    recipe.set("access.order", "shuffled" if shuffled else "sequential", origin)
    _tail(work, recipe)
    _seeds(work, recipe, files, samples)
    size = work.integer("reader.shuffle_size", default=1024)
    if size.given:
        work.note(size.origin, "DLIO uses this key for tfrecord only; other formats are permuted as a whole")


def _stream(
    work: WorkloadFile, recipe: Recipe, kind: Value[str], threads: Value[int], files: Value[str], samples: Value[str]
) -> None:
    """Converts TFRecord files: dealt to ranks, read from start to end, through a shuffle pool (reader/tf_reader.py)."""
    recipe.set("access.pattern", "stream", "TFRecord files are read from start to end")
    many = recipe.get("dataset.num_files") > 1
    recipe.set(
        "access.partition",
        "files" if many else "none",
        "files are dealt to the ranks" if many else "every rank reads the only file",
    )
    # main.py sorts the list of files. file_shuffle permutes it for tf_reader.py, whose tf.data.Dataset.list_files sorts
    # it again (tensorflow/core/kernels/matching_files_op.cc), and not for DALI (utils/config.py: reconfigure).
    recipe.set("access.order", "sequential", "DLIO reads TFRecord files in the order of their names")
    if files.value != "off":
        sorts = "tf.data's list_files sorts the files again" if kind.value == "tensorflow" else "DALI's list is sorted"
        work.note(files.origin, f"this key has no effect in DLIO: {sorts}")
    _tail(work, recipe)
    if kind.value == "tensorflow":
        _interleave(recipe, threads)
    elif threads.given and threads.value > 1:
        work.note(threads.origin, "DALI's reader of TFRecord files has one thread, which reads one file after another")
    size = work.integer("reader.shuffle_size", default=1024)
    if samples.value != "off" and size.value:
        recipe.set("access.shuffle_pool", size, f"{size.origin}, {samples.origin}")
    elif size.given:
        work.note(size.origin, "this key has an effect with sample_shuffle only, which is off")
    _seeds(work, recipe, samples)


def _interleave(recipe: Recipe, threads: Value[int]) -> None:
    """``TFRecordDataset(num_parallel_reads=read_threads)``, which interleaves even one file at a time by threads.

    Source: tensorflow/tensorflow, python/data/ops/readers.py: ``_create_dataset_reader`` makes a
    ``ParallelInterleaveDataset`` of any number but None, whose defaults are twice ``cycle_length`` files begun before
    their turn and twice ``block_length`` records ready of each file.
    """
    cycle = max(1, threads.value)
    if not threads.value:
        recipe.differs(f"{threads.origin}=0: TensorFlow refuses num_parallel_reads=0, so the recipe sets 1")
    recipe.set("access.interleave", cycle, f"{threads.origin}: files are read in turn, one record from each")
    recipe.set("access.interleave_prefetch", 2 * cycle, f"2 x {threads.origin}: files that TensorFlow opens early")
    recipe.set("access.interleave_buffer", 2, "TensorFlow's default: records that the thread of a file keeps ready")


def _tail(work: WorkloadFile, recipe: Recipe) -> None:
    batch = work.integer("reader.batch_size", default=1, minimum=1)
    there = recipe.get("dataset.num_files") * recipe.get("dataset.samples_per_file")
    if batch.value <= there:
        recipe.set("access.tail", "drop", "DLIO drops the last, incomplete batch")
        return
    recipe.set("access.tail", "pad", f"{batch.origin} exceeds the number of samples")
    recipe.differs(
        f"{batch.origin}={batch.value} with {there} samples: DLIO takes no step; here a batch repeats samples"
    )


def _seeds(work: WorkloadFile, recipe: Recipe, *orders: Value[str]) -> None:
    seed = work.integer("train.seed", default=123)
    if seed.given:
        recipe.set("seed", seed)
    for order in orders:
        if order.value == "random":
            recipe.differs(f"{order.origin}: random draws a new order in each run; here the seed fixes the order")
    change = work.flag("train.seed_change_epoch", default=True)
    if not change.value and any(order.value != "off" for order in orders):
        work.note(change.origin, "every epoch has its own order")


def _workers(work: WorkloadFile, recipe: Recipe, threads: Value[int], ahead: Value[int]) -> None:
    """Converts to torch's DataLoader with the settings of torch_data_loader.py."""
    recipe.set("loader.num_workers", threads, f"{threads.origin}: worker processes of torch's DataLoader")
    context = work.choice("reader.multiprocessing_context", choices=("fork", "forkserver", "spawn"), default="fork")
    if threads.value:
        factor = math.ceil(ahead.value / threads.value) or 2
        recipe.set("loader.prefetch_factor", factor, f"ceil({ahead.origin} / read_threads); 2 for 0")
        recipe.set("loader.persistent_workers", True, "DLIO always sets this option")
        recipe.set("loader.multiprocessing_context", context)
    else:
        for value in (context, ahead):
            if value.given:
                work.note(value.origin, "reader.read_threads=0: there are no workers")
    pin = work.flag("reader.pin_memory", default=True)
    if pin.given:
        recipe.set("loader.pin_memory", pin)
    else:
        recipe.differs("reader.pin_memory is True by default; set loader.pin_memory=true on a machine with a GPU")


def _threads(
    work: WorkloadFile, recipe: Recipe, kind: Value[str], threads: Value[int], ahead: Value[int], form: str
) -> None:
    """Converts tf.data and DALI, which read with threads of the rank's process."""
    if form == "tfrecord":
        recipe.set("loader.read_threads", 1, f"{kind.origin}: {kind.value} reads ahead in the rank's process")
    else:
        recipe.set("loader.read_threads", max(1, threads.value), f"{threads.origin}: threads of {kind.value}")
    recipe.set("loader.prefetch_batches", max(1, ahead.value), ahead.origin)
    if work.take("reader.multiprocessing_context"):
        work.note("reader.multiprocessing_context", f"{kind.value} starts no worker processes")
    if work.take("reader.pin_memory"):
        work.note("reader.pin_memory", "DLIO uses this key with torch's DataLoader only")


def _rest(work: WorkloadFile, recipe: Recipe, form: str) -> None:
    # FormatReader.read_index opens the file, reads the sample and closes it again.
    if form not in ("tfrecord", "synthetic"):
        recipe.set("loader.max_open_files", 1, "DLIO closes a file after each sample")
        if recipe.get("dataset.samples_per_file") > 1:
            recipe.differs(
                "DLIO opens the file for each sample; here the file remains open while consecutive samples lie in it"
            )
    kind = work.choice("reader.read_type", choices=("on_demand", "memory"), default="on_demand")
    if kind.value == "memory":
        recipe.set("loader.in_memory", True, f"{kind.origin}: memory")
        for key in ("loader.num_workers", "loader.read_threads"):
            if recipe.get(key):
                work.note("reader.read_threads", "reader.read_type=memory reads the rank's share before training")
        _drop_readers(recipe)
    access = work.text("reader.file_access", default="multi")
    if access.value not in ("multi", "shared"):
        work.note(access.origin, f"each rank reads files separately through POSIX, not by {access.value}")
    direct = work.flag("reader.odirect")
    if direct.value:
        work.note(direct.origin, "files are read through the page cache")
    helpers = work.integer("reader.computation_threads", default=1)
    if helpers.value > 1:
        work.note(helpers.origin, "samples are preprocessed in the thread or process that reads them")


def _drop_readers(recipe: Recipe) -> None:
    for key in ("num_workers", "read_threads", "prefetch_factor", "persistent_workers", "multiprocessing_context"):
        recipe.settings.pop(f"loader.{key}", None)
    recipe.settings.pop("loader.prefetch_batches", None)
