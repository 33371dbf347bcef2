"""From recipe, fragments, scale and arguments to one frozen configuration."""

from __future__ import annotations

import dataclasses
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest
import yaml
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from dlio_torch.config import fields
from dlio_torch.config.compose import Composed, compose
from dlio_torch.config.emit import as_dict, sources_to_yaml, to_yaml
from dlio_torch.config.resources import find, shipped
from dlio_torch.config.schema import Config
from dlio_torch.config.yamlfile import dump_scalar, parse_document
from dlio_torch.errors import ConfigError

MINIMAL = ["recipe=minimal"]


def write(folder: Path, name: str, text: str) -> Path:
    path = folder / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(textwrap.dedent(text), encoding="utf-8")
    return path


def of(tmp_path: Path, text: str, *args: str) -> Composed:
    write(tmp_path, "mine.yaml", text)
    return compose(["recipe=./mine.yaml", *args], cwd=tmp_path, environ={})


# --- what one composition leaves to the next ---


def test_a_recipe_that_was_changed_is_read_anew(tmp_path: Path) -> None:
    head = "dataset: {fields: [{name: x, shape: [4]}]}\n"
    assert of(tmp_path, f"{head}seed: 2\n").config.seed == 2
    changed = of(tmp_path, f"{head}\nseed: 3\n")
    assert (changed.config.seed, changed.sources["seed"]) == (3, "./mine.yaml:3")
    assert of(tmp_path, head).config.seed == 1


def test_one_composition_does_not_change_the_settings_of_another(tmp_path: Path) -> None:
    recipe = "defaults: [{loader: workers}]\ndataset:\n  hdf5:\n  fields: [{name: x, shape: [4]}]\n"
    before = of(tmp_path, recipe)
    other = of(tmp_path, recipe, "dataset.fields.0.shape.0=9", "loader.num_workers=7", "dataset.larcv3.images=5")
    assert (other.config.dataset.fields[0].shape, other.config.loader.num_workers) == ([9], 7)
    assert of(tmp_path, recipe) == before


def test_what_a_text_says_can_be_changed_without_changing_the_text() -> None:
    parse_document("a: {b: [1]}", "x").tree["a"]["b"].append("2")
    assert parse_document("a: {b: [1]}", "x").tree == {"a": {"b": ["1"]}}


def test_equal_values_that_are_not_written_alike() -> None:
    assert dump_scalar([1, True, 1.0, "1", 0.0, -0.0, 0, False]) == "[1, true, 1.0, '1', 0.0, -0.0, 0, false]"
    assert [dump_scalar(value) for value in ("a, b", ["a, b"], [{"c": [1]}])] == ["a, b", "['a, b']", "[{c: [1]}]"]


# --- layers and sources --------------------------------------------------------------------------


def test_each_layer_wins_over_those_below_it_and_is_named(tmp_path: Path) -> None:
    recipe = """\
        defaults:
          - loader: workers
          - compute: sleep
        loader:
          persistent_workers: false
        dataset:
          fields: [{name: x, shape: [4]}]
        """
    made = of(tmp_path, recipe, "loader.prefetch_factor=7")
    assert made.config.loader.num_workers == 2
    assert made.config.loader.persistent_workers is False
    assert made.config.loader.prefetch_factor == 7
    assert made.config.loader.engine == "dataloader"
    assert made.sources["loader.num_workers"] == "conf/loader/workers.yaml:2"
    assert made.sources["loader.persistent_workers"] == "./mine.yaml:5"
    assert made.sources["loader.prefetch_factor"] == "command line"
    assert made.sources["loader.engine"] == "default"
    assert made.sources["dataset.fields.0.shape"] == "./mine.yaml:7"
    assert made.sources["dataset.fields.0.dtype"] == "default"
    assert made.sources["recipe"] == "command line"


def test_every_leaf_has_a_source() -> None:
    made = compose(MINIMAL)
    assert set(made.sources) == {option.key for option, _ in fields.leaves(made.config)}


def test_a_choice_on_the_command_line_takes_the_place_of_the_recipes_and_beats_its_keys(tmp_path: Path) -> None:
    recipe = """\
        defaults: [{compute: sleep}, {loader: workers}]
        compute: {mode: sleep, step_s: 1s}
        dataset: {fields: [{name: x}]}
        """
    made = of(tmp_path, recipe, "compute=spin", "loader=threads", "scale=paper")
    assert made.config.compute.mode == "spin"
    assert made.config.compute.step_s == 1.0
    assert made.sources["compute.mode"] == "conf/compute/spin.yaml:2"
    assert (made.config.loader.num_workers, made.config.loader.read_threads) == (0, 1)


def test_later_arguments_win() -> None:
    made = compose([*MINIMAL, "train.epochs=2", "seed=3", "train.epochs=5"])
    assert (made.config.train.epochs, made.config.seed) == (5, 3)


def test_an_option_beats_a_choice_wherever_it_stands() -> None:
    assert compose([*MINIMAL, "loader.num_workers=3", "loader=workers"]).config.loader.num_workers == 3


def test_one_element_of_a_list_can_be_set() -> None:
    made = compose([*MINIMAL, "dataset.fields.0.name=a/b", "dataset.fields.0.shape.1=16"])
    assert made.config.dataset.fields[0].name == "a/b"
    assert made.config.dataset.fields[0].shape == [64, 16]
    assert made.sources["dataset.fields.0.name"] == "command line"
    assert made.sources["dataset.fields.0.shape"] == "command line"
    assert made.sources["dataset.fields.0.dtype"] == "recipes/minimal.yaml:24"


def test_lists_and_groups_can_be_set_whole() -> None:
    made = compose(
        [
            *MINIMAL,
            "dataset.fields=[{name: a, shape: [2]}, {name: b}]",
            "dataset.hdf5={chunk_bytes: 4KiB, compression: gzip}",
        ]
    )
    assert [field.name for field in made.config.dataset.fields] == ["a", "b"]
    assert made.config.dataset.hdf5.chunk_bytes == 4096
    assert made.config.dataset.hdf5.compression == "gzip"
    assert made.config.dataset.hdf5.compression_level == 4
    assert made.sources["dataset.fields.1.name"] == "command line"


def test_values_may_refer_to_other_keys(tmp_path: Path) -> None:
    made = of(
        tmp_path,
        "dataset: {num_files: 3, fields: [{name: x}]}\ntrain: {batch_size: '${dataset.num_files}'}\n",
        "output.dir=${output.root}/\\${here}",
    )
    assert made.config.train.batch_size == 3
    assert made.config.output.dir == "runs/${here}"


def test_the_configuration_is_frozen() -> None:
    config = compose(MINIMAL).config
    with pytest.raises(dataclasses.FrozenInstanceError):
        config.seed = 4  # type: ignore[misc]


# --- values --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("argument", "key", "value"),
    [
        ("dataset.hdf5.chunk_bytes=256KiB", "dataset.hdf5.chunk_bytes", 262144),
        ("dataset.hdf5.chunk_bytes=1.5 GiB", "dataset.hdf5.chunk_bytes", 1610612736),
        ("compute.step_s=500ms", "compute.step_s", 0.5),
        ("compute.step_s=1min", "compute.step_s", 60.0),
        ("compute.step_s=1e-3", "compute.step_s", 0.001),
        ("train.min_au=.9", "train.min_au", 0.9),
        ("verify=True", "verify", True),
        ("verify=off", "verify", False),
        ("output.dir=123", "output.dir", "123"),
        ("output.dir=null", "output.dir", None),
        ("output.dir=", "output.dir", None),
        ("output.root=a: b # c", "output.root", "a: b # c"),
        ("description=", "description", ""),
        ("dataset.larcv3.image_shape=[3, 4]", "dataset.larcv3.image_shape", [3, 4]),
        ("dataset.fields.0.chunk=null", "dataset.fields.0.chunk", None),
        ("dataset.larcv3.voxels_mean=19046", "dataset.larcv3.voxels_mean", 19046.0),
        ("train.allreduce_bytes=1_000", "train.allreduce_bytes", None),
        ("train.epochs=1_000", "train.epochs", 1000),
    ],
)
def test_values_are_converted_by_the_type_of_the_option(argument: str, key: str, value: object) -> None:
    args = [*MINIMAL, argument]
    if key == "train.allreduce_bytes":  # a size is a number and a unit; underscores are for plain counts
        with pytest.raises(ConfigError):
            compose(args)
        return
    found: object = compose(args).config
    for part in key.split("."):
        found = found[int(part)] if isinstance(found, list) else getattr(found, part)
    assert found == value
    assert type(found) is type(value)


def test_yaml_words_that_mean_something_else_elsewhere_stay_words(tmp_path: Path) -> None:
    made = of(
        tmp_path,
        """\
        description: off
        system: {name: 2024-01-01}
        output: {root: 010}
        verify: no
        checkpoint: {layout: none}
        loader:
        # a group whose options are all commented out
        dataset: {fields: [{name: 12:30:00}]}
        """,
    )
    assert made.config.description == "off"
    assert made.config.system.name == "2024-01-01"
    assert made.config.output.root == "010"
    assert made.config.verify is False
    assert made.config.checkpoint.layout == "none"
    assert made.config.dataset.fields[0].name == "12:30:00"


# --- places --------------------------------------------------------------------------------------


def test_folders_of_the_user_come_before_the_shipped_ones(tmp_path: Path) -> None:
    write(tmp_path, "a/recipes/minimal.yaml", "description: mine\ndefaults: [{dataset: special}, {compute: spin}]\n")
    write(tmp_path, "b/conf/dataset/special.yaml", "format: hdf5\nfields: [{name: z}]\n")
    write(tmp_path, "b/recipes/minimal.yaml", "description: hidden\n")
    made = compose(MINIMAL, cwd=tmp_path, environ={"DLIO_TORCH_PATH": f"a:{tmp_path}/b:"})
    assert made.config.description == "mine"
    assert made.config.dataset.fields[0].name == "z"
    assert made.config.compute.mode == "spin"
    assert made.sources["description"] == "a/recipes/minimal.yaml:1"
    assert made.sources["dataset.fields.0.name"] == f"{tmp_path}/b/conf/dataset/special.yaml:2"


def test_a_recipe_by_path_is_called_by_its_stem(tmp_path: Path) -> None:
    write(tmp_path, "sub/my exp.v2.yaml", "dataset: {fields: [{name: x}]}\n")
    for name in ("sub/my exp.v2.yaml", str(tmp_path / "sub" / "my exp.v2.yaml")):
        made = compose([f"recipe={name}"], cwd=tmp_path, environ={})
        assert made.config.recipe == "my_exp_v2"
        assert made.sources["dataset.fields.0.name"] == f"{name}:1"


def test_shipped_resources_are_found_from_any_folder(tmp_path: Path) -> None:
    code = "from dlio_torch.config.compose import compose; print(compose(['recipe=minimal']).sources['seed'])"
    root = shipped()
    done = subprocess.run(
        [sys.executable, "-c", code],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
        env={"PYTHONPATH": str(root)},
    )
    assert done.stdout.strip() == "default", done.stderr


def test_an_installed_package_brings_its_own_resources(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write(tmp_path, "dlio_torch/_resources/recipes/packed.yaml", "description: packed\n")
    monkeypatch.setattr("importlib.resources.files", lambda name: tmp_path / name)
    assert list(find(tmp_path, {}).recipes()) == ["packed"]


@pytest.mark.parametrize("name", sorted(find(Path.cwd(), {}).recipes()))
@pytest.mark.parametrize("scale", ["laptop", "tiny", "paper"])
def test_every_shipped_recipe_composes_at_every_scale(name: str, scale: str) -> None:
    data = ["dataset=hdf5", "dataset.path=/data"] if name == "custom" else []  # the recipe of existing files
    config = compose([f"recipe={name}", f"scale={scale}", *data], environ={}).config
    assert (config.recipe, config.scale.name) == (name, scale)
    assert config.description


@pytest.mark.parametrize(
    ("group", "choice"), [(g, c) for g in fields.groups() for c in sorted(find(Path.cwd(), {}).choices(g))]
)
def test_every_shipped_fragment_fits_the_schema(group: str, choice: str) -> None:
    if choice == "auto":  # it takes what the files hold
        return
    extra = ["dataset.larcv3.producers=[{name: a}]"] if choice == "larcv3" else []
    if group == "checkpoint" and choice != "none":
        extra += ["checkpoint.every_epochs=1"]
    if choice in ("dcp", "megatron_deepspeed", "safetensors") and group == "checkpoint":  # of a described model
        extra += [f"model.{name}=64" for name in ("hidden_size", "num_layers", "ffn_hidden_size", "vocab_size")]
        extra += ["model.num_heads=4", "scale=paper"]  # which keeps the interval
    made = compose([*MINIMAL, f"{group}={choice}", *extra], environ={})
    tree = yaml.safe_load((shipped() / "conf" / group / f"{choice}.yaml").read_text(encoding="utf-8"))
    assert tree
    name = f"conf/{group}/{choice}.yaml"
    # Each key of the fragment arrives, unless the recipe's own scale block or this test sets it.
    arrived = {key for key, source in made.sources.items() if source.startswith((name, "recipes/", "command line"))}
    for key in tree:
        assert any(found == f"{group}.{key}" or found.startswith(f"{group}.{key}.") for found in arrived)


# --- writing and reading again -------------------------------------------------------------------


def reload(tmp_path: Path, made: Composed, *args: str, sources: bool = False) -> Composed:
    (tmp_path / "config.yaml").write_text(to_yaml(made.config, made.sources if sources else None), encoding="utf-8")
    return compose([f"recipe={tmp_path}/config.yaml", *args], cwd=tmp_path, environ={})


@pytest.mark.parametrize("sources", [False, True])
@pytest.mark.parametrize("scale", ["laptop", "tiny", "paper"])
def test_a_written_configuration_loads_to_the_same_and_is_not_scaled_again(
    tmp_path: Path, scale: str, sources: bool
) -> None:
    made = compose(
        [
            *MINIMAL,
            f"scale={scale}",
            "dataset.num_files=50000",
            "checkpoint.layout=files",
            "checkpoint.every_steps=100",
            "checkpoint.files=[{name: 'm-{step}', bytes: 4MiB}, {name: i, bytes: 3}]",
            "output.dir=\\${x}",
            "expect=[{metric: a.b, value: 1e-9, source: 'x: y # z'}]",
        ],
        environ={},
    )
    again = reload(tmp_path, made, sources=sources)
    assert again.config == made.config
    assert again.notes == []
    assert again.sources["train.batch_size"].startswith(f"{tmp_path}/config.yaml:")


def test_a_written_configuration_can_still_be_changed_but_not_scaled(tmp_path: Path) -> None:
    made = compose(MINIMAL, environ={})
    assert reload(tmp_path, made, "train.epochs=9", "compute=spin").config.train.epochs == 9
    for argument in ("scale=paper", "scale.compute=1"):
        with pytest.raises(ConfigError, match="has already been applied"):
            reload(tmp_path, made, argument)


PUNCTUATION = st.sampled_from("aB0.:#'\"\\${}[]&*!|>%@`~- \t,?äλ")
AWKWARD = st.text(PUNCTUATION | st.characters(codec="utf-8", exclude_characters="\0"), max_size=20).filter(
    lambda text: text != "???"  # OmegaConf's mark of a missing value, which no configuration contains
)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None, max_examples=40)
@given(text=AWKWARD, seconds=st.floats(0, 1e6), size=st.integers(0, 2**62))
def test_any_text_and_number_survives_writing_and_reading(tmp_path: Path, text: str, seconds: float, size: int) -> None:
    config = compose(MINIMAL, environ={}).config
    config = dataclasses.replace(
        config,
        description=text,
        compute=dataclasses.replace(config.compute, step_s=seconds),
        train=dataclasses.replace(config.train, allreduce_bytes=size),
    )
    assert reload(tmp_path, Composed(config, {}, [])).config == config


def test_plain_data_and_sources_can_be_written(tmp_path: Path) -> None:
    made = compose(MINIMAL, environ={})
    assert as_dict(made.config)["dataset"]["fields"][0]["shape"] == [64, 64]
    assert yaml.safe_load(sources_to_yaml(made.sources)) == made.sources
    assert as_dict(Config())["loader"]["prefetch_factor"] is None
