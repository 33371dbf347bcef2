"""Ways of reading that exclude each other: what the command line asks for wins over the recipe, and says so."""

from __future__ import annotations

from operator import attrgetter
from pathlib import Path

import pytest

from dlio_torch.config.compose import compose
from dlio_torch.errors import ConfigError


def test_workers_replace_the_recipes_reader_thread(tmp_path: Path) -> None:
    found = compose(["recipe=cosmic_tagger", "loader.num_workers=2", "loader.prefetch_factor=4"], cwd=tmp_path)
    assert (found.config.loader.num_workers, found.config.loader.read_threads) == (2, 0)
    assert found.adjusted == ["loader.read_threads 1 -> 0, because loader.num_workers is set on the command line"]
    assert "loader.num_workers" in found.sources["loader.read_threads"]


def test_reader_threads_replace_the_recipes_workers(tmp_path: Path) -> None:
    found = compose(["recipe=minimal", "loader=workers", "loader.read_threads=1"], cwd=tmp_path)
    loader = found.config.loader
    assert (loader.num_workers, loader.read_threads, loader.prefetch_factor) == (0, 1, None)
    assert not loader.persistent_workers
    assert found.adjusted


def test_no_workers_leave_no_options_of_workers(tmp_path: Path) -> None:
    recipe = tmp_path / "mine.yaml"
    loader = "loader: {num_workers: 2, prefetch_factor: 3, persistent_workers: true, multiprocessing_context: spawn}"
    recipe.write_text(f"defaults: [dataset: synthetic]\n{loader}\n", encoding="utf-8")
    made = compose([f"recipe={recipe}", "loader.num_workers=0"], cwd=tmp_path)
    loader_options = made.config.loader
    assert (loader_options.prefetch_factor, loader_options.multiprocessing_context) == (None, None)
    assert made.adjusted == [
        "loader.prefetch_factor 3 -> None, because loader.num_workers=0 is set on the command line",
        "loader.persistent_workers True -> False, because loader.num_workers=0 is set on the command line",
        "loader.multiprocessing_context spawn -> None, because loader.num_workers=0 is set on the command line",
    ]
    with pytest.raises(ConfigError, match=r"prefetch_factor=4 \(command line\)"):
        compose([f"recipe={recipe}", "loader.num_workers=0", "loader.prefetch_factor=4"], cwd=tmp_path)


def test_both_asked_for_is_a_mistake(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="have no reader threads"):
        compose(["recipe=minimal", "loader.num_workers=2", "loader.read_threads=1"], cwd=tmp_path)


def test_what_agrees_is_left_alone(tmp_path: Path) -> None:
    assert compose(["recipe=cosmic_tagger"], cwd=tmp_path).adjusted == []
    assert compose(["recipe=minimal", "loader.num_workers=2"], cwd=tmp_path).adjusted == []


# A format, an option that it does not use with its other options, and the options with which it does.
WITHOUT_EFFECT = [
    ("csv", "dataset.csv.threads=4", ["dataset.csv.reader=mapped"]),
    ("parquet", "dataset.parquet.batch_rows=100", ["access=stream"]),
    ("safetensors", "dataset.safetensors.reopen=file", ["dataset.safetensors.samples=rows"]),
]


@pytest.mark.parametrize(("name", "option", "used"), WITHOUT_EFFECT)
def test_options_without_effect_are_told(name: str, option: str, used: list[str], tmp_path: Path) -> None:
    per_file = ["dataset.safetensors.samples=file", "dataset.samples_per_file=1"] if name == "safetensors" else []
    data = ["recipe=minimal", f"dataset={name}", *per_file]
    (line,) = compose([*data, option], cwd=tmp_path).adjusted
    assert line.startswith(f"{option} (command line) is not used: ")
    assert compose(data, cwd=tmp_path).adjusted == []
    assert compose([*data, option, *used], cwd=tmp_path).adjusted == []
    (line,) = compose([*data, option, "loader=decoupled"], cwd=tmp_path).adjusted
    assert line.startswith(f"{option} (command line) is not used by loader.engine=decoupled: ")


def test_batches_of_a_table_are_told(tmp_path: Path) -> None:
    options = ["dataset.parquet.batch_rows=100", "dataset.parquet.read=table"]
    (line,) = compose(["recipe=minimal", "dataset=parquet", "access=stream", *options], cwd=tmp_path).adjusted
    assert "is not used: dataset.parquet.read=table" in line


# --- loader.engine=decoupled -------------------------------------------------------------------------

# Recipe and arguments -> keys that give way, and their values then.
GIVES_WAY: dict[str, tuple[list[str], dict[str, object]]] = {
    "HDF5 driver": (
        ["recipe=cdb", "loader=decoupled"],
        {"dataset.hdf5.driver": "sec2", "dataset.hdf5.reopen": "file"},  # the latter is only told
    ),
    "mapped file": (["recipe=megatron_gpt", "loader=decoupled"], {"dataset.binary.access": "file"}),
    "data in memory": (["recipe=candle_nt3", "loader=decoupled"], {"loader.in_memory": False}),
    "data in memory, by the fragment": (
        ["recipe=candle_nt3", "loader=in_memory", "loader.engine=decoupled"],
        {"loader.in_memory": False},
    ),
    "batches ahead": (["recipe=ffn", "loader.engine=decoupled"], {"loader.prefetch_batches": 1}),
    "batches of workers ahead": (
        ["recipe=cdb", "loader.engine=decoupled"],
        {"loader.prefetch_factor": None, "dataset.hdf5.driver": "sec2", "dataset.hdf5.reopen": "file"},
    ),
    "batches ahead of a stream's workers": (
        ["recipe=cosmoflow", "loader=workers", "loader.engine=decoupled"],
        {"loader.prefetch_factor": None, "loader.prefetch_batches": 1},
    ),
    "threads of interleaved files": (
        ["recipe=bert", "loader=decoupled"],
        {"access.interleave_prefetch": 0, "access.interleave_buffer": 0},
    ),
}


@pytest.mark.parametrize("case", GIVES_WAY)
def test_options_of_other_engines_give_way_and_are_told(case: str, tmp_path: Path) -> None:
    arguments, values = GIVES_WAY[case]
    before = compose([arg for arg in arguments if "decoupled" not in arg], cwd=tmp_path)
    found = compose(arguments, cwd=tmp_path)
    assert found.config.loader.engine == "decoupled"
    assert [line.partition("=")[0] for line in found.adjusted] == list(values)
    for key, value in values.items():
        assert attrgetter(key)(found.config) == value
        (line,) = (line for line in found.adjusted if line.startswith(f"{key}="))
        assert f"({before.sources[key]}) is not used by loader.engine=decoupled: the " in line or "threads" in line
        assert before.sources[key] in found.sources[key]


def test_workers_of_a_stream_stay(tmp_path: Path) -> None:
    stream = ["recipe=minimal", "dataset=tfrecord", "access=stream", "loader=workers", "loader.num_workers=4"]
    found = compose([*stream, "loader.engine=decoupled"], cwd=tmp_path)
    assert found.config.loader.num_workers == 4
    assert [line.partition("=")[0] for line in found.adjusted] == ["loader.prefetch_factor"]


def test_options_of_libraries_are_told_and_left_alone(tmp_path: Path) -> None:
    given = "dataset.tfrecord.transfer_size=64KiB"
    found = compose(["recipe=imagenet", "loader=decoupled", given], cwd=tmp_path)
    assert found.config.dataset.tfrecord.transfer_size == 65536
    (line,) = (line for line in found.adjusted if line.startswith("dataset."))
    assert line.startswith("dataset.tfrecord.transfer_size=65536 (command line) is not used by loader.engine=decoupled")
    assert compose(["recipe=imagenet", given], cwd=tmp_path).adjusted == []
    gzip = ["dataset.tfrecord.compression=gzip", "loader=decoupled"]
    told = compose(["recipe=imagenet", given, *gzip], cwd=tmp_path).adjusted
    assert [line.partition("=")[0] for line in told] == ["access.interleave_prefetch", "access.interleave_buffer"]


def test_what_the_scale_has_set_is_told_once(tmp_path: Path) -> None:
    found = compose(["recipe=cosmic_tagger", "loader=decoupled"], cwd=tmp_path)
    assert "dataset.larcv3.cold_events" in found.scaled
    assert found.adjusted == []


@pytest.mark.parametrize("recipe", ["cosmoflow", "minimal"])
def test_a_recipe_that_has_nothing_for_other_engines_is_told_nothing(recipe: str, tmp_path: Path) -> None:
    assert compose([f"recipe={recipe}", "loader=decoupled"], cwd=tmp_path).adjusted == []


def test_a_datapipe_gives_way_to_workers_that_were_asked_for(tmp_path: Path) -> None:
    path = tmp_path / "piped.yaml"
    path.write_text("defaults: [{dataset: npy}]\nloader: {style: pipe, num_workers: 3}\n", encoding="utf-8")
    found = compose([f"recipe={path}", "loader.engine=decoupled"], cwd=tmp_path)
    assert (found.config.loader.style, found.config.loader.num_workers) == ("map", 3)
    found = compose([f"recipe={path}", "loader.engine=decoupled", "loader.style=pipe"], cwd=tmp_path)
    assert (found.config.loader.style, found.config.loader.num_workers) == ("pipe", 0)
    assert len(found.adjusted) == 1
    with pytest.raises(ConfigError, match=r"set loader\.style=map"):
        compose(
            [f"recipe={path}", "loader.engine=decoupled", "loader.style=pipe", "loader.num_workers=2"], cwd=tmp_path
        )


REFUSED = {
    "cdb": "dataset.hdf5.driver=core",
    "megatron_gpt": "dataset.binary.access=mmap",
    "candle_nt3": "loader.in_memory=true",
}


@pytest.mark.parametrize("recipe", REFUSED)
def test_what_the_command_line_sets_does_not_give_way(recipe: str, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=f"^{REFUSED[recipe]}"):
        compose([f"recipe={recipe}", "loader=decoupled", REFUSED[recipe]], cwd=tmp_path)


def test_a_volume_is_no_stream(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"dataset.format=hdf5_volume .* with access.pattern=stream"):
        compose(["recipe=ffn", "access=stream"], cwd=tmp_path)
