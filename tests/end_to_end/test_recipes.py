"""Every shipped recipe works at a tiny scale: on one rank with every sample verified, and on two ranks."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import yaml
from figure_checks import check_figures
from ranks import REPO, run_ranks

from dlio_torch.config.compose import compose
from dlio_torch.config.schema import Config

RECIPES = sorted(path.stem for path in (REPO / "recipes").glob("*.yaml") if path.stem != "custom")  # which has no data
# Making the content of a sample of 147 to 671 MB a second time would double the time of the test.
HUGE = ("dlrm", "unet3d")


def run(folder: Path, recipe: str, ranks: int, *options: str) -> dict[str, object]:
    args = [f"recipe={recipe}", "scale=tiny", f"output.dir={folder / 'run'}", "output.progress=false", *options]
    kind = "single" if ranks == 1 else "torch"
    for ended in run_ranks(kind, ranks, ["-m", "dlio_torch", *args], cwd=folder, timeout_s=240):
        assert ended.exit_code == 0, ended.stderr
    summary: dict[str, object] = json.loads((folder / "run" / "summary.json").read_text(encoding="utf-8"))
    check_figures(summary)
    return summary


@pytest.mark.ranks
@pytest.mark.parametrize("recipe", RECIPES)
def test_one_rank(recipe: str, tmp_path: Path) -> None:
    summary = run(tmp_path, recipe, 1, "verify=false" if recipe in HUGE else "verify=true")
    assert summary["world_size"] == 1
    assert summary["reads"]["samples"] > 0  # type: ignore[index]


def sharing(recipe: str) -> tuple[object, ...]:
    """How ranks share the data of a recipe; in which order, the contract of samplers checks for any number of ranks."""
    access = compose([f"recipe={recipe}", "scale=tiny"]).config.access
    return access.pattern, access.partition, access.shard, access.repeat


@pytest.mark.ranks
@pytest.mark.parametrize("recipe", {sharing(recipe): recipe for recipe in reversed(RECIPES)}.values())  # one each
def test_two_ranks(recipe: str, tmp_path: Path) -> None:
    summary = run(tmp_path, recipe, 2)
    assert summary["world_size"] == 2
    assert [row["steps"] for row in summary["ranks"]] == [summary["ranks"][0]["steps"]] * 2  # type: ignore[index]


@pytest.mark.parametrize("scale", ["laptop", "paper", "tiny"])
@pytest.mark.parametrize("recipe", RECIPES)
def test_composes_at_every_scale(recipe: str, scale: str) -> None:
    assert compose([f"recipe={recipe}", f"scale={scale}"]).config.recipe == recipe


def variants() -> list[tuple[str, str]]:
    found = []
    for recipe in RECIPES:
        text = (REPO / "recipes" / f"{recipe}.yaml").read_text(encoding="utf-8")
        found += [(recipe, name) for name in yaml.safe_load(text).get("accelerators", {})]
    return found


@pytest.mark.parametrize(("recipe", "accelerator"), variants())
def test_variants(recipe: str, accelerator: str) -> None:
    config = compose([f"recipe={recipe}", "scale=paper", f"accelerator={accelerator}"]).config
    assert config.accelerator == accelerator
    assert config.compute.step_s > 0


def test_workers_outlive_an_epoch_where_the_application_s_do() -> None:
    # The source of each is in the recipe.  The DataLoader of DeepCAM is made without persistent_workers.
    loaders = {recipe: compose([f"recipe={recipe}", "scale=paper"]).config.loader for recipe in RECIPES}
    assert {recipe: loader.persistent_workers for recipe, loader in loaders.items() if loader.num_workers} == {
        "cdb": True,
        "cosmoflow_hdf5": True,
        "deepcam": False,
        "megatron_gpt": True,
        "mixtral_8x7b": True,
        "mlperf_llama3_1t": True,
        "mlperf_llama3_405b": True,
        "mlperf_llama3_70b": True,
        "mlperf_llama3_8b": True,
        "unet3d": True,
    }


@pytest.mark.parametrize("scale", ["laptop", "paper", "tiny"])
@pytest.mark.parametrize(("recipe", "threads"), [("resnet50", 8), ("bert", 1), ("mlperf_cosmoflow", 4)])
def test_tfrecord_of_dlio_is_read_by_a_parallel_interleave(recipe: str, threads: int, scale: str) -> None:
    """TensorFlow 2.21, traced with ``TFRecordDataset(num_parallel_reads=N)``, N=1 too: 3N threads open 3N files."""
    config = compose([f"recipe={recipe}", f"scale={scale}"]).config
    access = config.access
    assert (access.interleave, access.interleave_prefetch, access.interleave_buffer) == (threads, 2 * threads, 2)
    assert (config.loader.num_workers, config.loader.read_threads) == (0, 1)
    assert config.dataset.num_files > 3 * threads


def test_the_workers_of_a_recipe_are_torch_s_own_by_default() -> None:
    assert compose(["recipe=minimal", "loader=workers"]).config.loader.persistent_workers is False


def test_published_step_times() -> None:
    """MLPerf Storage's step times, which the variants exist for."""

    def step_s(recipe: str, accelerator: str) -> float:
        made: Config = compose([f"recipe={recipe}", "scale=paper", f"accelerator={accelerator}"]).config
        return made.compute.step_s

    published = {
        "unet3d": {"v100": 1.3604, "a100": 0.636, "h100": 0.323, "b200": 0.162},
        "resnet50": {"v100": 0.195, "a100": 0.435, "h100": 0.224},
        "mlperf_cosmoflow": {"v100": 0.00936, "a100": 0.00551, "h100": 0.0035},
    }
    for recipe, times in published.items():
        assert {name: step_s(recipe, name) for name in times} == times
