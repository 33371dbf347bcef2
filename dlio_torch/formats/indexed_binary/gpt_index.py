"""The document, sample and shuffle index of Megatron-LM's GPTDataset, and their cache files.

The tokens of all documents, in the shuffled order of the document index, are one stream that is cut into samples;
a sample takes one token more than its length, the label of its last token, which the next one begins with.

Sources: NVIDIA/Megatron-LM, megatron/core/datasets/gpt_dataset.py (``_build_document_sample_shuffle_indices``,
``_build_document_index``, ``_build_shuffle_index``), helpers.cpp (``build_sample_idx``), megatron_dataset.py
(the description and its hash).  Of several epochs Megatron-LM shuffles the documents together; here it is one.
"""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt

from dlio_torch.errors import DataError
from dlio_torch.files.atomic_file import written_whole
from dlio_torch.formats.core.buffered_file import refusing
from dlio_torch.supervision.crashes import report_truncated_maps

EXTRA = 1
"""Additional tokens that a sample takes beyond its length."""

_ARRAYS = ("document_index", "sample_index", "shuffle_index")
_INT32 = np.iinfo(np.int32).max


@dataclass(frozen=True)
class GptIndex:
    """Mapping from samples to pieces of documents.

    Attributes:
        documents: the document index, numbers of documents in shuffled order; int32 of ``(documents,)``.
        samples: the sample index, position in ``documents`` and first token in that document where each slot of
            the stream begins; int32 or int64 of ``(samples + 1, 2)``.
        shuffle: the shuffle index, the slot of each sample; uint32 or int64 of ``(samples,)``.
    """

    documents: npt.NDArray[np.signedinteger[Any]]
    samples: npt.NDArray[np.signedinteger[Any]]
    shuffle: npt.NDArray[np.integer[Any]]

    def __len__(self) -> int:
        return len(self.shuffle)


def build_gpt_index(lengths: npt.NDArray[np.integer[Any]], sample: int, seed: int) -> GptIndex:
    """Builds the document, sample and shuffle index of one epoch.

    Args:
        lengths: tokens of each document.
        sample: tokens of a sample.
        seed: of the shuffling (``--seed``).
    """
    random = np.random.RandomState(seed % (1 << 32))
    documents = np.arange(len(lengths), dtype=np.int32)
    random.shuffle(documents)
    ends = np.cumsum(lengths[documents], dtype=np.int64)
    count = max(0, (int(ends[-1]) - EXTRA) // sample) if len(ends) else 0
    starts = np.arange(count + 1, dtype=np.int64) * sample
    # The document that holds the slot's first token, which is the last token of the slot before.
    positions = np.searchsorted(ends, starts, side="right")
    positions = np.minimum(positions, max(0, len(ends) - 1))
    begins = ends[positions] - lengths[documents[positions]] if len(ends) else starts
    largest = max(len(lengths), int(lengths.max(initial=0)))
    dtype: type[np.signedinteger[Any]] = np.int32 if largest <= _INT32 else np.int64
    samples: npt.NDArray[np.signedinteger[Any]] = np.stack([positions, starts - begins], axis=1).astype(dtype)
    wide = count >= np.iinfo(np.uint32).max - 1
    shuffle: npt.NDArray[np.integer[Any]] = np.arange(count).astype(np.int64 if wide else np.uint32)
    random.shuffle(shuffle)
    return GptIndex(documents, samples, shuffle)


@dataclass(frozen=True)
class GptCache:
    """Cache files that keep the indices of one ``.bin`` file between runs (``--data-cache-path``).

    Their names begin with the MD5 sum of the description.

    Args:
        prefix: path of the ``.bin`` without its suffix.
        sample: tokens of a sample.
        seed: of the shuffling.

    Attributes:
        ENDINGS: of the names, behind the hash: of the description, then of the three indices.
    """

    ENDINGS: ClassVar[tuple[str, ...]] = tuple(
        f"-GPTDataset-train-{name}" for name in ("description.txt", *(f"{array}.npy" for array in _ARRAYS))
    )

    prefix: Path
    sample: int
    seed: int

    @property
    def description(self) -> str:
        """JSON description of all parameters that the indices depend on."""
        return json.dumps(
            {
                "class": "GPTDataset",
                "dataset_path": self.prefix.name,
                "num_samples": None,  # one epoch
                "index_split": "train",
                "random_seed": self.seed % (1 << 32),
                "sequence_length": self.sample,
            },
            indent=4,
        )

    def paths(self) -> list[Path]:
        """Paths of the description, document index, sample index and shuffle index, in this order."""
        digest = hashlib.md5(self.description.encode(), usedforsecurity=False).hexdigest()
        return [self.prefix.with_name(f"{digest}{ending}") for ending in self.ENDINGS]

    def save(self, index: GptIndex) -> None:
        """Write the description and the three arrays, as the first rank of Megatron-LM does.

        Raises:
            OSError: they cannot be written.
        """
        description, *arrays = self.paths()
        with written_whole(description) as file:
            file.write(self.description.encode())
        for path, array in zip(arrays, (index.documents, index.samples, index.shuffle), strict=True):
            with written_whole(path) as file:
                np.save(file, array, allow_pickle=False)

    def load(self) -> GptIndex | None:
        """Map the three arrays, as every rank does; ``None`` if one of the four files is missing.

        Raises:
            DataError: a file is damaged, or holds something else.
        """
        paths = self.paths()
        if not all(path.is_file() for path in paths):
            return None
        with refusing(paths[0]):
            if paths[0].stat().st_size != len(self.description):  # it is never read
                raise _damaged(paths[0], "the file was truncated or changed")
        report_truncated_maps()
        arrays = []
        for path in paths[1:]:
            with refusing(path):
                arrays.append(np.load(str(path), mmap_mode="r", allow_pickle=False))
        for path, array, axes in zip(paths[1:], arrays, (1, 2, 1), strict=True):
            if array.ndim != axes or array.dtype.kind not in "iu":
                raise _damaged(path, f"the file holds {array.dtype}{list(array.shape)}")
        index = GptIndex(*arrays)
        if index.samples.shape != (len(index) + 1, 2):
            raise _damaged(
                paths[2], f"{len(index)} samples need {len(index) + 1} rows, but the file has {len(index.samples)}"
            )
        return index


def _damaged(path: Path, problem: str) -> DataError:
    return DataError(
        f"{path} is not a valid index of samples: {problem}", hint="remove the file and generate the data again"
    )
