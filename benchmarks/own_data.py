"""Measures whether the num_workers that is recommended for a folder of images is the best of a grid.

Pillow alone writes the folder: JPEG, PNG and WebP in class folders, with sizes around ImageNet's 400 x 350 pixels.  The
values of the grid run in turns, each once a round.  Two things recommend a value: ``tune``, which searches the same
grid, and the advice of each run of the grid.

A recommended value is compared with the value of the highest median by the ratios of both in the same rounds:

best           it is that value
within noise   the 95 % interval of the ratio's median reaches 1, or the median lacks less than 1 %
worse          it does not
unresolved     the interval reaches 1, but also a gain of more than 10 %: repeat on an idle machine, with more rounds
one round      one round gives no interval

Advice that a run withholds is given with its reason: nothing is predicted where other programs take the cores.
"""

from __future__ import annotations

import json
import subprocess
import tempfile
from argparse import ArgumentParser, Namespace
from collections import Counter
from collections.abc import Iterator, Sequence
from functools import partial
from itertools import count
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.harness.command import alone
from benchmarks.harness.rounds import Figures, Rounds, Unavailable, interleave, rounds_of, say
from benchmarks.harness.tables import Missing, Part, Row, Table
from dlio_torch.errors import ConfigError
from dlio_torch.study.strategies.search.acquisition import LEAST_GAIN
from dlio_torch.study.strategies.search.confirmation import PairedGain, paired_gain
from dlio_torch.supervision.run_process import emulator, run_process

NAME = "own_data"
KEY = "loader.num_workers"
IMAGES, QUICK_IMAGES = 1600, 80
CLASSES = 10
KINDS = ((".jpg", "JPEG"), (".JPEG", "JPEG"), (".jpg", "JPEG"), (".png", "PNG"), (".webp", "WEBP"))
WIDTH, HEIGHT, SPREAD = 400, 350, 0.25  # mean pixels, and their standard deviation over the mean
ROUNDS = 5
_TIMEOUT_S = 1800.0
_QUICK = ("0", "1")
_RESOLVED = 0.1  # gain that must lie outside the interval


def add_arguments(parser: ArgumentParser) -> None:
    parser.add_argument("--workers", metavar="N,...", default="0,1,2,4", help="values of the grid")
    parser.add_argument("--images", type=int, metavar="N", default=IMAGES, help="images of the folder")
    parser.add_argument("--minutes", type=float, metavar="M", default=10.0, help="longest time of the search by tune")
    parser.add_argument("--transform", default="random_resized_crop", help="value of dataset.image.transform")


def run(arguments: Namespace) -> Iterator[Part]:
    values = _QUICK if arguments.quick else tuple(arguments.workers.split(","))
    images = QUICK_IMAGES if arguments.quick else arguments.images
    with tempfile.TemporaryDirectory(dir=arguments.directory) as name:
        folder = Path(name)
        say(f"writing {images} images")
        write_images(folder / "photos", images)
        trials = Trials(folder, arguments.transform)
        ways = {value: partial(trials.run, value) for value in values}
        rounds = interleave(ways, rounds_of(arguments, ROUNDS), warmups=0 if arguments.quick else 1)
        yield from (Missing(f"{KEY}={value}", why) for value, why in rounds.dropped.items())
        if not rounds.figures:
            return
        title = f"Samples per second of {images} images in batches of 32, {arguments.transform} to 224 pixels."
        yield Table("grid", grid(rounds, trials), title)
        say("tune")
        # The budget of a quick search: the default, another value, and the pairs that confirm.
        tuned, reason = trials.tuned(values, arguments.minutes, trials=8 if arguments.quick else 30)
    if tuned is None:
        yield Missing("tune", reason)
    advised = Counter(value for items in trials.advised.values() for value in items)
    sources = [] if tuned is None else [("tune", tuned, reason)]
    runs = sum(map(len, trials.withheld.values()))
    sources += [
        (f"advice of {times} of {runs} runs", value, "the first advice of these runs")
        for value, times in advised.most_common()
    ]
    title = f"Recommended {KEY} beside the best of the grid; ratios are those of the same rounds."
    yield Table(NAME, [verdict(rounds, *source) for source in sources], title)


def write_images(root: Path, images: int) -> None:
    """Writes images of mixed sizes and suffixes to class folders, by Pillow alone.

    Raises:
        ConfigError: Pillow is not installed.
    """
    try:
        from PIL import Image
    except ImportError as error:
        raise ConfigError("the benchmark own_data needs Pillow", hint="pip install Pillow") from error
    generator = np.random.default_rng(1)
    for number in range(images):
        folder = root / f"class{number % CLASSES}"
        folder.mkdir(parents=True, exist_ok=True)
        width, height = (int(np.clip(generator.normal(mean, SPREAD * mean), 64, 4 * mean)) for mean in (WIDTH, HEIGHT))
        y, x = np.mgrid[0:height, 0:width]
        smooth = np.stack([x * 255 // width, y * 255 // height, (x + y + number) % 256], axis=-1)
        pixels = np.clip(smooth + generator.integers(-20, 20, smooth.shape), 0, 255).astype(np.uint8)
        suffix, kind = KINDS[number % len(KINDS)]
        Image.fromarray(pixels).save(folder / f"{number:06d}{suffix}", kind)


class Trials:
    """Runs on the folder of images, each a command of its own.

    Args:
        folder: contains the images in ``photos``; runs go beside them.
        transform: value of ``dataset.image.transform``.

    Attributes:
        advised: values of ``loader.num_workers`` that runs advised, by the value that they had.
        withheld: for each run, by its value: why it advised no more workers; "" where it gave no reason.
    """

    def __init__(self, folder: Path, transform: str) -> None:
        self.advised: dict[str, list[str]] = {}
        self.withheld: dict[str, list[str]] = {}
        self._folder = folder
        self._settings = [f"dataset.path={folder / 'photos'}", f"dataset.image.transform={transform}", "cache=as_is"]
        self._settings.append("storage.limits=off")
        self._numbers = count(1)

    def run(self, value: str) -> Figures:
        """Samples per second of one run with this number of workers.

        Raises:
            Unavailable: it failed.
        """
        directory = self._folder / f"run{next(self._numbers)}"
        settings = [*self._settings, f"{KEY}={value}", "output.progress=false", f"output.dir={directory}"]
        ended = run_process(emulator(["run", *settings]), directory.with_suffix(".log"), timeout_s=_TIMEOUT_S)
        if ended.exit_code:
            raise Unavailable(ended.error)
        summary: dict[str, Any] = json.loads((directory / "summary.json").read_text(encoding="utf-8"))
        advice = summary["advice"]
        items = [str(item["value"]) for item in advice["items"] if item["key"] == KEY]
        self.advised.setdefault(value, []).extend(items[:1])
        self.withheld.setdefault(value, []).append("; ".join(advice["withheld"]) if not items else "")
        return {"rate": summary["train"]["samples_per_s"]}

    def tuned(self, values: Sequence[str], minutes: float, trials: int) -> tuple[str | None, str]:
        """The value that ``tune`` recommends, and its answer in its own words; ``None`` and why if it failed."""
        study = self._folder / "study"
        settings = [*self._settings, f"{KEY}={','.join(values)}", f"minutes={minutes:g}", f"trials={trials}"]
        command = emulator(["tune", *settings, f"output={study}", "--json"])
        done = subprocess.run(command, capture_output=True, text=True, timeout=_TIMEOUT_S, check=False)
        if done.returncode:
            return None, done.stderr.strip().rpartition("\n")[2]
        answer = json.loads(done.stdout)
        return str(answer["recommended"]["values"][KEY]), answer["answer"]


def grid(rounds: Rounds, trials: Trials) -> list[Row]:
    """A row for each value of the grid: its rate, and what its runs advised."""
    best = fastest(rounds)
    return [
        {
            KEY: value,
            "samples/s": rounds.spread(value, "rate"),
            f"of {KEY}={best}": rounds.ratio(value, "rate", best),
            "advised by its runs": _listed(trials.advised.get(value, [])),
            "no advice because": _listed([reason for reason in trials.withheld.get(value, []) if reason][:1]),
        }
        for value in rounds.figures
    ]


def _listed(words: Sequence[str]) -> str:
    return ", ".join(f"{word} ({times}x)" if times > 1 else word for word, times in Counter(words).items()) or "-"


def fastest(rounds: Rounds) -> str:
    """The value of the grid with the highest median rate."""
    return max(rounds.figures, key=lambda value: rounds.spread(value, "rate").median)


def verdict(rounds: Rounds, source: str, value: str, text: str) -> Row:
    """A row that compares a recommended value with the best of the grid."""
    best = fastest(rounds)
    cells: dict[str, str | float | None] = {
        "recommended by": source, KEY: value, "best of the grid": best, "gain of the best": None,
        "95 % interval": "-", "recommendation": "not in the grid", "its words": text,
    }  # fmt: skip
    if value not in rounds.figures:
        return cells
    gain = paired_gain(list(zip(rounds.values(value, "rate"), rounds.values(best, "rate"), strict=True)))
    assert gain is not None
    cells["gain of the best"] = gain.gain
    if gain.low is not None and gain.high is not None:
        cells["95 % interval"] = f"{100 * gain.low:+.1f} % to {100 * gain.high:+.1f} %"
    if value == best:
        said = "best"
    elif gain.low is None:
        said = "one round"
    else:
        said = _compared(gain)
    return cells | {"recommendation": said}


def _compared(gain: PairedGain) -> str:
    """Verdict on a value by the gain of the best of the grid over it."""
    assert gain.low is not None
    assert gain.high is not None
    if gain.low > 0 and gain.gain >= LEAST_GAIN:
        return "worse"
    return "within noise" if gain.high <= _RESOLVED else "unresolved"


if __name__ == "__main__":
    alone(NAME)
