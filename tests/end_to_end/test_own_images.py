"""A folder of images that Pillow alone saved: inspected and read in one command each."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from own_data import command, summary_of, traced_command, training_reads

Image = pytest.importorskip("PIL.Image", reason="Pillow is not installed")

CLASSES, EACH = ("cat", "dog", "horse"), 40
KINDS = {".jpg": "JPEG", ".JPG": "JPEG", ".jpeg": "JPEG", ".png": "PNG", ".webp": "WEBP"}


@pytest.fixture(scope="module")
def photos(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Photographs of mixed suffixes and sizes in a folder for each class, with a file that is none."""
    folder = tmp_path_factory.mktemp("own") / "photos"
    generator = np.random.default_rng(3)
    for name in CLASSES:
        (folder / name).mkdir(parents=True)
        for number in range(EACH):
            height, width = generator.integers(40, 200, 2)
            suffix = list(KINDS)[number % len(KINDS)]
            pixels = generator.integers(0, 256, (height, width, 3), np.uint8)
            Image.fromarray(pixels).save(folder / name / f"{number:03d}{suffix}", KINDS[suffix])
    (folder / "README.txt").write_text("own photographs")
    return folder


def test_own_images_are_inspected(photos: Path, tmp_path: Path) -> None:
    shown = command("inspect", str(photos), "--output", "mine.yaml", cwd=tmp_path)
    assert "imagefolder" in shown
    assert ".jpg 48, .jpeg 24, .png 24, .webp 24" in shown
    assert "random_resized_crop" in (tmp_path / "mine.yaml").read_text()


def test_own_images_are_read(photos: Path, tmp_path: Path) -> None:
    calls = traced_command(tmp_path, f"dataset.path={photos}", "output.dir=run")
    done = summary_of(tmp_path)
    samples = len(CLASSES) * EACH
    assert done["dataset"]["layout"]["samples"] == samples
    # 3 whole batches of 32; the incomplete last one is dropped, as by DataLoader's drop_last.
    delivered = samples // 32 * 32
    assert done["warmup"]["samples"] + done["train"]["samples"] == delivered
    reads = training_reads(calls, photos)
    assert done["io"]["rchar_bytes"] == sum(call.result for call in reads)
    files = {call.path for call in reads if call.path.startswith(str(photos))}
    assert len(files) == delivered
    sizes = sum(Path(path).stat().st_size for path in files)
    assert sizes <= sum(call.result for call in reads if call.path in files)
