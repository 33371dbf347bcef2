"""Records are decoded behind the shuffle pool, where the application's pipeline decodes them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from pattern_data import CountingFormat

from dlio_torch.data.order.specification import StreamSpec
from dlio_torch.data.order.stream_plan import StreamPlan
from dlio_torch.data.pipeline.stream import StreamStart
from dlio_torch.data.pipeline.stream_dataset import StreamDataset
from dlio_torch.errors import DataError
from dlio_torch.formats.core.batch import Sample
from dlio_torch.formats.core.reader import Reader
from dlio_torch.iotrace.recorder.spans import NULL


class EncodedFormat(CountingFormat):
    """Counts how many samples were read, and how many were decoded; sample ``damaged`` cannot be."""

    def __init__(self, counts: list[int], damaged: int = -1) -> None:
        super().__init__(counts)
        self.read = self.decodings = 0
        self.damaged = damaged

    def stored(self, reader: Reader) -> Iterator[tuple[str, Sample]]:
        for sample in self.stream(reader):
            self.read += 1
            yield "encoded", sample

    def decoded(self, stored: Any) -> Sample:
        self.decodings += 1
        sample: Sample = stored[1]
        if int(sample["x"][0]) == self.damaged:
            raise DataError("sample cannot be decoded", hint="replace it")
        return sample


def batches_of(fmt: EncodedFormat, unit: str = "sample", pool: int = 12) -> Iterator[list[tuple[int, Sample]]]:
    plan = StreamPlan(fmt.counts, StreamSpec(batch_size=4, pool=pool))
    return StreamStart(plan, StreamDataset(fmt, fmt.manifest(), NULL, unit=unit))(0, 0)


def test_the_pool_holds_what_is_not_decoded() -> None:
    fmt = EncodedFormat([10, 10])
    batches = batches_of(fmt)
    first = next(batches)
    assert fmt.decodings == len(first) == 4
    assert fmt.read >= 12
    rest = [record for batch in batches for record in batch]
    assert fmt.decodings == fmt.read == 20
    assert sorted(number for number, _ in first + rest) == list(range(20))
    assert all(number == int(sample["x"][0]) for number, sample in first + rest)


def test_files_that_are_read_whole_are_decoded_at_once() -> None:
    fmt = EncodedFormat([10, 10])
    assert sum(map(len, batches_of(fmt, "file"))) == 20
    assert fmt.decodings == 0


def test_a_damaged_record_is_an_error_in_the_place_of_its_batch() -> None:
    batches = batches_of(EncodedFormat([10, 10], damaged=6), pool=0)
    assert len(next(batches)) == 4
    with pytest.raises(DataError, match="cannot be decoded"):
        next(batches)
