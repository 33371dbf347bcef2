"""Every mistake gives one line that names key, value, source and remedy, and nothing but ConfigError."""

from __future__ import annotations

import textwrap
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from dlio_torch.config import fields
from dlio_torch.config.compose import Composed, compose
from dlio_torch.errors import ConfigError

RECIPE = "defaults: [{loader: main_process}]\ndataset: {fields: [{name: x, shape: [4]}]}\n"
FORMATS = ("hdf5", "larcv3", "synthetic")


def of(tmp_path: Path, text: str, *args: str) -> Composed:
    (tmp_path / "mine.yaml").write_text(textwrap.dedent(text), encoding="utf-8")
    return compose(["recipe=mine.yaml", *args], cwd=tmp_path, environ={}, formats=FORMATS)


def message(tmp_path: Path, text: str, *args: str) -> str:
    with pytest.raises(ConfigError) as caught:
        of(tmp_path, text, *args)
    line = str(caught.value)
    assert "\n" not in line
    assert caught.value.hint
    assert caught.value.exit_code == 2
    return line


# What the user wrote -> what the line must hold: key and value, source, remedy.
ARGUMENTS = [
    # unknown keys
    ("loader.num_worker=4", ["loader.num_worker=4", "did you mean loader.num_workers?"]),
    ("lodaer.num_workers=4", ["lodaer.num_workers=4", "did you mean loader.num_workers?"]),
    ("num_workers=4", ["num_workers=4", "loader.num_workers"]),
    ("Loader.Num_Workers=4", ["Loader.Num_Workers=4", "did you mean loader.num_workers?"]),
    ("dataset.hdf5.chunk=4", ["dataset.hdf5.chunk=4", "did you mean dataset.hdf5.chunk_bytes?"]),
    ("loader.num_workers.x=4", ["loader.num_workers.x=4", "is a single option, not a group"]),
    ("dataset.fields.name=a", ["dataset.fields.name=a", "write dataset.fields.0 for its first element"]),
    ("dataset.fields.0.nam=a", ["dataset.fields.0.nam=a", "did you mean dataset.fields.0.name?"]),
    ("dataset.fields.7.name=a", ["dataset.fields.7.name=a", "has 1 element", "dataset.fields.0"]),
    ("dataset.fields.0.shape.3=1", ["dataset.fields.0.shape.3=1", "dataset.fields.0.shape has 1 element"]),
    ("dataset.fields.*.name=a", ["dataset.fields.*.name=a", "unknown option"]),
    ("zzz=4", ["zzz=4", "groups are dataset, generate"]),
    (".=4", [".=4", "unknown option"]),
    (
        "checkpoint.kind=torch",
        ["checkpoint.kind=torch", "unknown option; it is now checkpoint.layout (torch_save for torch)"],
    ),
    # wrong types
    ("loader.num_workers=abc", ["loader.num_workers=abc", "expected a whole number", "at least 0"]),
    ("loader.num_workers=true", ["loader.num_workers=true", "expected a whole number"]),
    ("loader.num_workers=4.0", ["loader.num_workers=4.0", "expected a whole number"]),
    ("loader.num_workers=1e3", ["loader.num_workers=1e3", "expected a whole number"]),
    ("loader.num_workers=", ["loader.num_workers=", "expected a whole number"]),
    ("loader.num_workers=null", ["loader.num_workers=null", "expected a whole number"]),
    ("loader.num_workers=[1]", ["loader.num_workers=[1]", "expected a whole number"]),
    ("seed=99999999999999999999", ["seed=99999999999999999999", "too large"]),
    ("compute.step_s=abc", ["compute.step_s=abc", "expected a duration such as 0.5 or 500ms"]),
    ("compute.step_s=nan", ["compute.step_s=nan", "not infinity or NaN"]),
    ("train.min_au=inf", ["train.min_au=inf", "not infinity or NaN"]),
    ("verify=maybe", ["verify=maybe", "expected true or false"]),
    ("loader=5", ["loader=5", "choices are decoupled, in_memory, main_process, threads, workers"]),
    ("dataset.hdf5=gzip", ["dataset.hdf5=gzip", "is a group of options", "dataset.hdf5.<option>"]),
    ("dataset.fields=x", ["dataset.fields=x", "expected a list"]),
    ("dataset.fields=[{nam: x}]", ["dataset.fields.0.nam=x", "did you mean dataset.fields.0.name?"]),
    ("dataset.fields=[x]", ["dataset.fields.0=x", "is a group of options"]),
    ("dataset.larcv3.image_shape=[1, x]", ["dataset.larcv3.image_shape.1=x", "expected a whole number"]),
    ("dataset.larcv3.image_shape=[1", ["dataset.larcv3.image_shape=[1", "malformed YAML"]),
    # choices, ranges, units
    ("access.order=shufled", ["access.order=shufled", "did you mean shuffled?", "random_blocks"]),
    ("access.order=off", ["access.order=off", "choices are sequential, shuffled"]),
    ("train.batch_size=0", ["train.batch_size=0", "must be at least 1"]),
    ("train.batch_size=-3", ["train.batch_size=-3", "must be at least 1"]),
    ("dataset.hdf5.chunk_bytes=-4KiB", ["dataset.hdf5.chunk_bytes=-4KiB", "must be at least 0 B"]),
    ("dataset.hdf5.chunk_bytes=4Kb", ["dataset.hdf5.chunk_bytes=4Kb", "unknown unit 'Kb'", "did you mean KB?", "KiB"]),
    ("dataset.hdf5.chunk_bytes=4ms", ["dataset.hdf5.chunk_bytes=4ms", "unknown unit 'ms'", "KiB"]),
    ("dataset.hdf5.chunk_bytes=0.5", ["dataset.hdf5.chunk_bytes=0.5", "not a whole number of bytes"]),
    ("compute.step_s=5 sec", ["compute.step_s=5 sec", "unknown unit 'sec'", "did you mean s?"]),
    ("compute.step_s=-1ms", ["compute.step_s=-1ms", "must be at least 0 s"]),
    # names
    ("dataset.format=hdf", ["dataset.format=hdf", "did you mean hdf5?", "hdf5, larcv3, synthetic"]),
    ("scale=lapto", ["scale=lapto", "did you mean laptop?", "as_written, laptop, paper, tiny"]),
    ("scale.name=paper", ["scale.name=paper", "write scale=paper"]),
    (
        "compute=../compute/spin",
        ["compute=../compute/spin", "no such file", "compute is chosen among cuda, none, sleep, spin"],
    ),
    ("train=fast", ["train=fast", "no such choice of train"]),
    # references
    ("output.dir=${nope}", ["output.dir=${nope}", "'nope' not found", "${group.option}"]),
    ("output.dir=${", ["output.dir=${", "${group.option}"]),
    ("output.dir=${output.dir}", ["output.dir=${output.dir}", "${group.option}"]),
    ("output.dir=${nope:1}", ["output.dir=${nope:1}", "nope"]),
    ("output.dir=???", ["output.dir=???", "add output.dir=<value>"]),
    ("train.epochs=${dataset}", ["train.epochs={...}", "expected a whole number"]),
]


@pytest.mark.parametrize(("argument", "named"), ARGUMENTS, ids=[argument for argument, _ in ARGUMENTS])
def test_a_wrong_argument(tmp_path: Path, argument: str, named: list[str]) -> None:
    line = message(tmp_path, RECIPE, argument)
    for text in [*named, "(command line)"]:
        assert text in line


IMPOSSIBLE = [
    (["loader.prefetch_factor=2"], ["loader.prefetch_factor=2 (command line)", "loader.num_workers=0 (conf/loader/"]),
    (["loader.persistent_workers=true"], ["loader.persistent_workers=true", "loader.num_workers=0"]),
    (["loader.multiprocessing_context=fork"], ["loader.multiprocessing_context=fork", "loader.num_workers=0"]),
    (
        ["loader.engine=nodes", "loader.style=pipe"],
        ["loader.engine=nodes", "loader.style=pipe", "loader.engine=dataloader"],
    ),
    (
        ["loader.engine=nodes", "loader.num_workers=1", "loader.persistent_workers=true"],
        ["loader.engine=nodes", "loader.persistent_workers=true", "persistent_workers=false"],
    ),
    (
        ["dataset.format=synthetic", "dataset.path=x"],
        ["dataset.format=synthetic", "dataset.path=x", "leave dataset.path out"],
    ),
    (
        ["loader.num_workers=1", "loader.read_threads=1"],
        ["loader.read_threads=1", "num_workers=1", "have no reader threads"],
    ),
    (["train.eval_every_epochs=1"], ["train.eval_every_epochs=1", "dataset.num_files_eval=0 (default)"]),
    (["train.eval_every_steps=1", "dataset.num_files_eval=1"], ["train.eval_every_steps=1", "samples_per_file_eval=0"]),
    (["checkpoint.every_steps=5"], ["checkpoint.every_steps=5", "checkpoint.layout=none (default)", "checkpoint=none"]),
    (["checkpoint.restore=true"], ["checkpoint.restore=true", "checkpoint.layout=none"]),
    (["checkpoint.layout=torch_save"], ["checkpoint.layout=torch_save", "checkpoint.every_steps=0"]),
    (
        ["checkpoint.layout=torch_save", "checkpoint.every_epochs=1"],
        ["checkpoint.layout=torch_save", "checkpoint.state_bytes=0"],
    ),
    (["checkpoint.layout=files", "checkpoint.every_epochs=1"], ["checkpoint.layout=files", "checkpoint.files=[]"]),
    (
        ["checkpoint.layout=files", "checkpoint.every_epochs=1", "checkpoint.files=[{name: ../x}]"],
        ["checkpoint.files.0.name=../x", "not a file name"],
    ),
    (["dataset.hdf5.compression=gzip"], ["dataset.hdf5.compression=gzip", "dataset.hdf5.chunk_bytes=0"]),
    *(
        ([f"dataset.{name}.compression_level=10"], [f"dataset.{name}.compression_level=10", "at least 0 and at most 9"])
        for name in ("hdf5", "larcv3", "netcdf", "tfrecord", "volume")
    ),
    # Beyond it, content would be written outside of its memory.
    *(
        ([f"dataset.{name}.compressibility=1.5"], [f"dataset.{name}.compressibility=1.5", "at most 1"])
        for name in ("hdf5", "netcdf", "npz", "parquet", "tfrecord")
    ),
    (["verify=true", "dataset.path=/x"], ["verify=true", "dataset.path=/x"]),
    (["train.min_au=90"], ["train.min_au=90.0", "train.min_au=0.9 for 90 %"]),
    (["compute.stdev_s=1"], ["compute.stdev_s=1.0", "compute.distribution=constant"]),
    (["compute.stdev_s=1", "compute.distribution=exponential"], ["compute.stdev_s=1.0", "distribution=exponential"]),
    (["dataset.fields=[]"], ["dataset.fields=[] (command line)", "dataset.format=hdf5"]),
    (["dataset.fields=[{name: a}, {name: a}]"], ["dataset.fields.1.name=a", "unique"]),
    (["dataset.fields.0.dtype=float33"], ["dataset.fields.0.dtype=float33", "float32"]),
    (["dataset.fields.0.shape=[4, 0]"], ["dataset.fields.0.shape=[4, 0]", "at least 1"]),
    (["dataset.fields.0.length_stdev=4"], ["dataset.fields.0.length_stdev=4.0", "length_mean=0.0"]),
    (["dataset.format=larcv3"], ["dataset.larcv3.producers=[]", "dataset.format=larcv3"]),
]


@pytest.mark.parametrize(("arguments", "named"), IMPOSSIBLE, ids=[arguments[-1] for arguments, _ in IMPOSSIBLE])
def test_an_impossible_combination(tmp_path: Path, arguments: list[str], named: list[str]) -> None:
    line = message(tmp_path, RECIPE, *arguments)
    for text in named:
        assert text in line


def test_chunked_data_may_be_compressed_and_need_not_be(tmp_path: Path) -> None:
    chunk = "dataset.fields.0.chunk=[1, 4]"
    assert of(tmp_path, RECIPE, "dataset.hdf5.compression=lzf", chunk).config.dataset.hdf5.compression == "lzf"
    assert of(tmp_path, RECIPE, "dataset.hdf5.chunk_bytes=1KiB").config.dataset.hdf5.compression == "none"


FILES = [
    ("loader: {num_wrokers: 4}", ["loader.num_wrokers=4 (mine.yaml:1)", "did you mean loader.num_workers?"]),
    ("seed: 1\nloader:\n  num_workers: x", ["loader.num_workers=x (mine.yaml:3)", "expected a whole number"]),
    ("seed: 1\nloader:\n  num_workers: yes", ["loader.num_workers=yes (mine.yaml:3)", "expected a whole number"]),
    ("\nloader: 4", ["loader=4 (mine.yaml:2)", "is a group of options"]),
    ("seed: {a: 1}", ["seed={...} (mine.yaml:1)", "is a single option, not a group"]),
    ("seed: null", ["seed=null (mine.yaml:1)", "null is not permitted"]),
    (
        "dataset:\n  fields:\n  - name: x\n    dtyp: int8",
        ["dataset.fields.0.dtyp=int8 (mine.yaml:4)", ".0.dtype?"],
    ),
    ("dataset: {fields: {name: x}}", ["dataset.fields={...} (mine.yaml:1)", "is a single option, not a group"]),
    ("defaults: x", ["defaults=x (mine.yaml:1)", "- group: choice"]),
    ("defaults:\n- loader", ["defaults=loader (mine.yaml:2)", "group: choice"]),
    ("defaults:\n- {lodaer: x}", ["defaults.lodaer=x (mine.yaml:2)", "did you mean loader?"]),
    ("defaults:\n- loader: wrokers", ["loader=wrokers (mine.yaml:2)", "did you mean workers?"]),
    ("defaults:\n- loader: workers\n- loader: threads", ["defaults.loader=threads (mine.yaml:3)", "appears twice"]),
    ("scale: {max_samples: 1}", ["scale={...} (mine.yaml:1)", "scales: {laptop:"]),
    ("scales: 4", ["scales=4 (mine.yaml:1)", "scales: {laptop:"]),
    ("scales:\n  lapto: {}", ["scale=lapto (mine.yaml:2)", "did you mean laptop?"]),
    ("scales:\n  paper: {max_sampels: 1}", ["scale.max_sampels=1 (mine.yaml:2)", "did you mean scale.max_samples?"]),
    ("scales:\n  paper: 4", ["scales.paper=4 (mine.yaml:2)", "explain scale"]),
    ("resolved: perhaps", ["resolved=perhaps (mine.yaml:1)", "remove the line"]),
    ("resolved: true\ndefaults: []", ["defaults (mine.yaml:2)", "resolved: true"]),
    ("resolved: true\nrecipe: ../../x", ["recipe=../../x (mine.yaml:2)", "letters, digits"]),
    # malformed, dangerous or large YAML
    ("a: b: c", ["mine.yaml:1", "malformed YAML"]),
    ("loader:\n\t- x", ["mine.yaml:2", "malformed YAML"]),
    ("- a\n- b", ["mine.yaml", "key: value"]),
    ("seed: 1\nseed: 2", ["mine.yaml:2", "key 'seed' appears twice"]),
    ("seed: !!python/object/apply:os.system ['true']", ["mine.yaml:1", "tag '!!python/object/apply:os.system'"]),
    ("seed: !mine 4", ["mine.yaml:1", "tag '!mine'"]),
    ("? [a]\n: 1", ["mine.yaml:1", "a key must be a plain word"]),
    ("a: &a [*a]", ["mine.yaml:1", "too many or too deeply nested"]),
    ("\x00", ["mine.yaml", "malformed YAML"]),
    ("a: " + "[" * 5000, ["mine.yaml", "malformed YAML"]),
    ("# " + "x" * (1 << 20), ["mine.yaml", "larger than"]),
]


@pytest.mark.parametrize(("text", "named"), FILES, ids=[text[:40] for text, _ in FILES])
def test_a_wrong_recipe_file(tmp_path: Path, text: str, named: list[str]) -> None:
    line = message(tmp_path, text)
    for part in named:
        assert part in line


def test_aliases_that_multiply_the_text_are_refused(tmp_path: Path) -> None:
    text = "a: &a [x, x, x, x, x, x, x, x, x]\n"
    for before, after in zip("abcdefg", "bcdefgh", strict=True):
        text += f"{after}: &{after} [{', '.join([f'*{before}'] * 9)}]\n"
    assert "remove the YAML aliases" in message(tmp_path, text)


def test_a_plain_alias_works(tmp_path: Path) -> None:
    made = of(tmp_path, "dataset: {fields: [{name: x, shape: &s [4]}, {name: y, shape: *s}]}")
    assert made.config.dataset.fields[1].shape == [4]


RECIPES = [
    ("minmal", ["recipe=minmal", "did you mean minimal?", "recipes are"]),
    ("../minimal", ["recipe=../minimal", "no such file", "minimal"]),
    ("..", ["recipe=..", "no such recipe"]),
    ("", ["recipe", "minimal"]),
    ("mine.yml", ["recipe=mine.yml", "no such file", "did you mean mine.yaml?"]),
    ("./folder", ["recipe=./folder", "is a folder", "recipe=./folder/config.yaml"]),
    ("./latin.yaml", ["recipe=./latin.yaml", "is not UTF-8 text"]),
    ("~nobody_of_that_name/x.yaml", ["recipe=~nobody_of_that_name/x.yaml", "name a YAML file"]),
    ("./" + "x" * 5000 + ".yaml", ["the path cannot be used"]),
    ("./a\0b.yaml", ["the path cannot be used"]),
]


@pytest.mark.parametrize(("name", "named"), RECIPES, ids=[name[:30] for name, _ in RECIPES])
def test_a_recipe_that_is_not_there(tmp_path: Path, name: str, named: list[str]) -> None:
    (tmp_path / "mine.yaml").write_text(RECIPE, encoding="utf-8")
    (tmp_path / "latin.yaml").write_bytes(b"description: \xe4\n")
    (tmp_path / "folder").mkdir()
    with pytest.raises(ConfigError) as caught:
        compose([f"recipe={name}"], cwd=tmp_path, environ={})
    assert "(command line)" in str(caught.value)
    for text in named:
        assert text in str(caught.value)


@pytest.mark.parametrize(
    ("argument", "named"),
    [
        ("loader.num_workers", "write loader.num_workers=<int>"),
        ("loader.num_wrokers", "did you mean loader.num_workers?"),
        ("loader", "write loader.<option>=<value>"),
        ("word", "recipe=cosmic_tagger"),
        ("=4", "no key before '='"),
        ("--loader.num_workers", "write key=value"),
        ("output.root=\udcff", "not UTF-8 text"),
    ],
)
def test_an_argument_without_key_or_value(tmp_path: Path, argument: str, named: str) -> None:
    line = message(tmp_path, RECIPE, argument)
    assert repr(argument) in line
    assert "(command line)" in line
    assert named in line


# --- any input at all ----------------------------------------------------------------------------

KEYS = st.sampled_from([option.key.replace("*", "0") for option in fields.walk()]) | st.text(max_size=12)
VALUES = st.one_of(
    st.text(max_size=20),
    st.integers().map(str),
    st.floats().map(str),
    st.sampled_from(
        ["null", "true", "[]", "{}", "[1,2]", "{a: b}", "${seed}", "${dataset}", "???", "4KiB", "5ms", "!x", "&a [*a]"]
    ),
)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None, max_examples=150)
@given(st.lists(st.tuples(KEYS, VALUES).map("=".join) | st.text(max_size=20), max_size=3))
def test_any_arguments_compose_or_are_refused_in_one_line(tmp_path: Path, arguments: list[str]) -> None:
    try:
        made = of(tmp_path, RECIPE, *arguments)
    except ConfigError as error:
        line = str(error)
    else:
        assert made.config.recipe
        line = ""
    assert "\n" not in line


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None, max_examples=100)
@given(st.text(st.sampled_from("abseed: 1[]{}&*!|>%@`#\"'\n\t,?-$.") | st.characters(codec="utf-8"), max_size=60))
def test_any_recipe_text_composes_or_is_refused_in_one_line(tmp_path: Path, text: str) -> None:
    (tmp_path / "mine.yaml").write_text(text, encoding="utf-8", newline="")
    try:
        line = compose(["recipe=mine.yaml"], cwd=tmp_path, environ={}).config.recipe
    except ConfigError as error:
        line = str(error)
    assert line
    assert "\n" not in line
