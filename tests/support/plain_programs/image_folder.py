"""Trains on a folder of JPEG images, a folder for each class, with random crops and flips in workers."""

from __future__ import annotations

import random
from collections.abc import Callable
from pathlib import Path

import numpy as np
import plain_training
import torch
from PIL import Image
from torch.utils.data import DataLoader, Dataset

CLASSES = ("cat", "dog", "horse", "ship")


class RandomResizedCrop:
    """A part of an image of random area and shape, scaled to a square."""

    def __init__(self, size: int) -> None:
        self.size = size

    def __call__(self, image: Image.Image) -> Image.Image:
        area = image.width * image.height * random.uniform(0.08, 1.0)
        ratio = np.exp(random.uniform(np.log(3 / 4), np.log(4 / 3)))
        width = min(image.width, round((area * ratio) ** 0.5))
        height = min(image.height, round((area / ratio) ** 0.5))
        left, top = random.randint(0, image.width - width), random.randint(0, image.height - height)
        box = (left, top, left + width, top + height)
        return image.resize((self.size, self.size), Image.Resampling.BILINEAR, box=box)


def train_transform(image: Image.Image) -> torch.Tensor:
    image = RandomResizedCrop(224)(image)
    if random.random() < 0.5:
        image = image.transpose(Image.Transpose.FLIP_LEFT_RIGHT)
    return torch.from_numpy(np.array(image)).permute(2, 0, 1).float().div(255)


class ImageFolder(Dataset[tuple[torch.Tensor, int]]):
    """Images of a folder, with the number of their class."""

    def __init__(self, root: Path, transform: Callable[[Image.Image], torch.Tensor]) -> None:
        self.transform = transform
        classes = sorted(folder.name for folder in root.iterdir() if folder.is_dir())
        self.samples = [(path, label) for label, name in enumerate(classes) for path in sorted((root / name).iterdir())]

    def __len__(self) -> int:
        return len(self.samples)

    def __getitem__(self, index: int) -> tuple[torch.Tensor, int]:
        path, label = self.samples[index]
        with open(path, "rb") as file:
            image = Image.open(file).convert("RGB")
        return self.transform(image), label


def make(folder: Path, samples: int) -> None:
    """JPEG images of about 100 KB."""
    rng = np.random.default_rng(0)
    for number in range(samples):
        coarse = Image.fromarray(rng.integers(0, 256, (12, 16, 3), np.uint8)).resize((500, 375))
        pixels = np.asarray(coarse, np.int16) + rng.integers(-24, 25, (375, 500, 3), np.int16)
        path = folder / CLASSES[number % len(CLASSES)] / f"{number:06d}.jpg"
        path.parent.mkdir(parents=True, exist_ok=True)
        Image.fromarray(pixels.clip(0, 255).astype(np.uint8)).save(path, quality=90)


def main() -> None:
    args = plain_training.parse(plain_training.flags(__doc__, samples=96))
    if args.make:
        make(args.data, args.samples)
        return
    dataset = ImageFolder(args.data, train_transform)
    loader = DataLoader(dataset, args.batch_size, shuffle=True, num_workers=args.workers, drop_last=True)
    training = plain_training.Training(args)
    for _ in range(args.epochs):
        for images, _labels in loader:
            training.step(images)
    training.report()


if __name__ == "__main__":
    main()
