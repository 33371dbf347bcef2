"""Strategies for fuzzing cases with files (recipes, DLIO workloads, studies) or an unusual environment."""

from __future__ import annotations

from typing import Any

import yaml
from hypothesis import strategies as st

from benchmarks.fuzzing import values
from benchmarks.fuzzing.cases import Case
from dlio_torch.interop.dlio.dlio_keys import KNOWN

_LEAVES = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(),
    st.integers(-2, 9),
    st.floats(),
    st.text(max_size=10),
    st.sampled_from(values.WRONG),
    st.lists(st.integers(0, 4), max_size=3),
    st.dictionaries(st.sampled_from(("a", "name", "dtype", "mean", "stdev", "type")), st.integers(0, 9), max_size=2),
)
_LINES = st.sampled_from(
    (
        "seed: 1", "seed: 1", "seed: !!int 1", "seed: !!binary aGk=", "a: &a [*a]", "a: &a b", "b: *a", "<<: *a",
        "<<: {seed: 2}", "? [x]\n: y", "---", "...", "%YAML 1.1", "\tseed: 1", "defaults: [dataset: hdf5]", "defaults:",
        "defaults: [{dataset: ../../../etc/passwd}]", "defaults: [{scale: tiny}]", "defaults: [hdf5]", "resolved: true",
        "scales: {tiny: {max_files: ${seed}}}", "scales: {tiny: {compute: 1e400}}", "scales: {tiny:}", "scale: tiny",
        "accelerators: {a100: {compute: {step_s: 1}}}", "accelerator: a100", "recipe: ../../x", "recipe: minimal",
        "description: \"\\0\"", "description: \"\\ud800\"", "description: |\n  a\n  b",
        "dataset: {fields: [{name: x}]}",
        "dataset:", "dataset: {path: ${oc.env:HOME}}",
        "output: {dir: ${output.root}}", "output: {root: ${output.dir}}",
        "train: {epochs: ${train.epochs}}", "expect: [{metric: x}]", "expect: {metric: x}", "expect: [1]",
        "seed: ${oc.decode:'1'}", "system: {name: ''}", "checkpoint: {files: [{name: ../x, bytes: 1}]}", "1: 2",
        "null: 1", "true: 1", "[a]", "- a", "@", "`", "a: [", "a: {b", "'a",
        "\"a", "é: è", "loader: {num_workers: 1_0}",
        "seed: 0b1", "seed: 1:30", "seed: 2024-01-01", "verify: y", "seed: .inf", "dataset: !mine {}",
    )
)  # fmt: skip


_GOOD = "dataset: {format: npy, num_files: 2, samples_per_file: 4, fields: [{name: x, shape: [4]}]}\n"


@st.composite
def recipe(draw: st.DrawFn) -> Case:
    """Draws recipe files: options of the schema in right and wrong places, and lines of all kinds."""
    if draw(st.booleans()):
        begin = draw(st.sampled_from(("", _GOOD)))
        text = begin + "\n".join(draw(st.lists(_LINES | st.text(max_size=30), max_size=6)))
    else:
        tree: dict[str, Any] = {}
        for key in draw(st.lists(st.sampled_from(values.every_key()), max_size=5)):
            _put(tree, key.split("."), draw(_LEAVES))
        text = yaml.safe_dump(
            tree, allow_unicode=draw(st.booleans()), default_flow_style=draw(st.sampled_from((None, True)))
        )
    content = text.encode(draw(st.sampled_from(("utf-8",) * 8 + ("utf-16", "utf-8-sig", "utf-32"))), "surrogatepass")
    verb = draw(st.sampled_from(("show", "run", "generate", "explain")))
    extra = ("--dry-run",) if verb in ("run", "generate") else ()
    name = draw(st.sampled_from(("mine.yaml", "a b.yaml", "a;b.yml", "<b>.yaml", "-x.yaml", "ü.yaml")))
    return Case("recipe", (verb, f"recipe=./{name}", *extra), {name: content})


_DLIO = tuple(key for key in KNOWN if "*" not in key)


@st.composite
def workload(draw: st.DrawFn) -> Case:
    """Draws workload files of DLIO: its keys with likely and impossible values, and Hydra's notations."""
    tree: dict[str, Any] = {}
    if draw(st.booleans()):
        tree = {
            "framework": "pytorch",
            "workflow": {"generate_data": True, "train": True},
            "dataset": {"format": draw(st.sampled_from(_FORMATS)), "num_files_train": 4, "record_length_bytes": 512},
            "reader": {"data_loader": "pytorch", "batch_size": 2, "read_threads": 1},
            "train": {"epochs": 1, "computation_time": 0.001},
        }
    for key in draw(st.lists(st.sampled_from(_DLIO), min_size=1, max_size=6)):
        _put(tree, key.split("."), draw(_LEAVES | st.sampled_from(_WORDS)))
    for line in draw(st.lists(st.sampled_from(_HYDRA), max_size=1)):
        tree.update(line)
    if draw(st.integers(0, 4)) == 0:
        tree = {"workload": tree}
    content = yaml.safe_dump(tree).encode()
    flags = draw(st.sampled_from(((), (), ("--strict",), ("--ranks=8",))))
    argv = ("import-dlio", "work.yaml", "--output=out.yaml", "--force", *flags)
    return Case("dlio", argv, {"work.yaml": content}, then=("run", "recipe=./out.yaml", "scale=tiny", "--dry-run"))


_FORMATS = ("npz", "hdf5", "tfrecord", "csv", "jpeg", "png", "indexed_binary", "mmap_indexed_binary", "parquet",
            "synthetic", "npy", "hdf5_npz", "x")  # fmt: skip
_WORDS = (*_FORMATS, "on", "off", "SEED", "random", "${dataset.format}", "${oc.env:HOME}", "${nope}", "normal", "0",
          "1", "4", "1e9", "1e18", 2**62, 2**63, 10**30, [2, 3], [0], [1] * 9, [1, "x"],
          {"type": "normal", "mean": 1})  # fmt: skip
_HYDRA = (
    {"defaults": ["_self_", {"override hydra/job_logging": "none"}]},
    {"defaults": [{"workload": "unet3d"}]},
    {"hydra": {"run": {"dir": "."}}},
    {"++workload.reader.batch_size": 4},
    {"+x": 1},
    {"_target_": "os.system"},
    {"storage": {"storage_type": "s3", "storage_root": "bucket", "storage_options": {"access_key_id": "x"}}},
    {"model": "unet3d"},
    {"model": {"name": "llama", "type": "transformer", "num_layers": 2, "parallelism": {"tensor": 2, "pipeline": 3}}},
)  # fmt: skip


_STRANGE = (
    "",
    " ",
    "x",
    "-1",
    "0",
    "99999999999999999999",
    "1.5",
    "\n",
    "a:b",
    "/nowhere/at/all",
    "ü",
    "0x1",
    "nan",
    "1,2",
)
_VARIABLES = ("RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT", "SLURM_PROCID",
              "SLURM_STEP_NUM_TASKS", "SLURM_LOCALID", "PMI_RANK", "PMI_SIZE", "PMIX_RANK", "OMPI_COMM_WORLD_RANK",
              "OMPI_COMM_WORLD_SIZE", "HOROVOD_RANK", "HOROVOD_SIZE", "HOROVOD_ELASTIC", "OMP_NUM_THREADS", "COLUMNS",
              "LINES", "NO_COLOR", "FORCE_COLOR", "TERM", "LANG", "LC_ALL", "HOME", "XDG_CACHE_HOME", "TMPDIR",
              "DLIO_TORCH_PATH", "DLIO_TORCH_DEBUG", "PYTHONIOENCODING", "USER", "CUDA_VISIBLE_DEVICES")  # fmt: skip


_LAUNCHERS: tuple[tuple[str, ...], ...] = (
    (),
    (),
    ("RANK", "WORLD_SIZE"),
    ("RANK", "WORLD_SIZE", "LOCAL_RANK", "MASTER_ADDR", "MASTER_PORT"),
    ("PMI_RANK", "PMI_SIZE"),
    ("OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE"),
    ("SLURM_PROCID", "SLURM_STEP_NUM_TASKS"),
    ("HOROVOD_RANK", "HOROVOD_SIZE"),
)


@st.composite
def environment(draw: st.DrawFn) -> Case:
    """Draws a small run, or a verb that only reads, with unusual environment variables."""
    names = draw(st.lists(st.sampled_from(_VARIABLES), min_size=1, max_size=3, unique=True))
    names += draw(st.sampled_from(_LAUNCHERS))
    environ = {name: draw(st.sampled_from(_STRANGE) | st.none()) for name in names}
    verb = draw(st.sampled_from(("run", "run", "show", "ls", "generate", "clean")))
    argv: tuple[str, ...] = (verb,)
    if verb != "ls":
        argv += ("recipe=minimal", "scale=tiny", "dist.timeout_s=3s")
    if verb in ("run", "generate"):
        argv += ("storage.limits=off",)
    return Case("environment", argv, environ=environ)


def _put(tree: dict[str, Any], path: list[str], value: Any) -> None:
    for name in path[:-1]:
        inside = tree.get(name)
        if not isinstance(inside, dict):
            inside = tree[name] = {}
        tree = inside
    tree[path[-1]] = value
