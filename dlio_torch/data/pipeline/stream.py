"""DataPipes of files that are read from start to end: records, batches of records, tensors.

    StreamFiles -> read_records -> interleave_records -> shuffle_pool -> decode_records -> batches -> assemble_batches

:class:`~dlio_torch.data.order.stream_plan.StreamPlan` says which files, and predicts what comes out.  In memory are
the pool, the open files and the batches under way.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from itertools import islice

from torch.utils.data import IterDataPipe, functional_datapipe, get_worker_info

from dlio_torch.compute.emulate import Preprocess
from dlio_torch.data.dataset.batch_memory import batch_allocator
from dlio_torch.data.dataset.fetched import Fetched, failed
from dlio_torch.data.dataset.provenance import BatchRecorder
from dlio_torch.data.order.pipe_plan import PipePlan
from dlio_torch.data.order.stream_plan import StreamPlan
from dlio_torch.data.pipeline.pattern_pipes import Interleave, ShufflePool
from dlio_torch.data.pipeline.round_robin import RoundRobin
from dlio_torch.data.pipeline.stream_dataset import Piece, Record, StoredRecord, StreamDataset
from dlio_torch.data.workers.transfer_errors import shared_numbers
from dlio_torch.errors import DlioError
from dlio_torch.formats.core.batch import ArraySpec, Batch, batch_bytes, collated
from dlio_torch.iotrace.recorder.spans import NULL, Recorder


class StreamFiles(IterDataPipe[Piece]):
    """Iterable of the files, or blocks, of one part of a plan; each iteration is the next pass.

    >>> from dlio_torch.data.order.specification import StreamSpec
    >>> list(StreamFiles(StreamPlan([2, 2, 2], StreamSpec(batch_size=1)), epoch=0, part=0))
    [(0, 0, 0, range(0, 2)), (1, 0, 2, range(0, 2)), (2, 0, 4, range(0, 2))]
    """

    def __init__(self, plan: StreamPlan, epoch: int, part: int) -> None:
        super().__init__()
        self._plan = plan
        self._part = part
        self._pass = 0 if plan.endless else epoch

    def __iter__(self) -> Iterator[Piece]:
        number, self._pass = self._pass, self._pass + 1
        plan = self._plan
        files = plan.files(number, self._part)
        return ((*plan.place(file), plan.first(file), plan.rows(number, file)) for file in files)


@functional_datapipe("read_records")
class RecordSources(IterDataPipe[Iterator[StoredRecord]]):
    """DataPipe of one iterator of records per file: ``StreamFiles(plan, 0, 0).read_records(dataset)``.

    Nothing is opened before such an iterator is asked for its first record.
    """

    def __init__(self, source: IterDataPipe[Piece], dataset: StreamDataset) -> None:
        super().__init__()
        self._source = source
        self._dataset = dataset

    def __iter__(self) -> Iterator[Iterator[StoredRecord]]:
        return (self._dataset.records(piece) for piece in self._source)


@functional_datapipe("decode_records")
class DecodeRecords(IterDataPipe[Record]):
    """DataPipe that decodes records: ``records.decode_records(dataset)``."""

    def __init__(self, source: IterDataPipe[StoredRecord], dataset: StreamDataset) -> None:
        super().__init__()
        self._source = source
        self._dataset = dataset

    def __iter__(self) -> Iterator[Record]:
        return map(self._dataset.decoded, self._source)


class RecordBatches(IterDataPipe[list[Record]]):
    """Batches of records of one rank, epoch by epoch; a loader worker gets those of one part of the plan.

    Args:
        plan: which samples.
        start: begins the batches of a part: called with epoch and part.
    """

    def __init__(self, plan: PipePlan, start: Callable[[int, int], Iterator[list[Record]]]) -> None:
        super().__init__()
        self._plan = plan
        self._start = start
        # Shared memory: workers that persist learn of a new epoch, and of a position to resume at.
        self._position = shared_numbers(2)

    def begin(self, epoch: int, step: int = 0) -> None:
        """Set the position of the next iteration: ``epoch``, from batch ``step`` on."""
        self._position[0], self._position[1] = epoch, step

    def __iter__(self) -> Iterator[list[Record]]:
        worker = get_worker_info()
        epoch, step = (int(value) for value in self._position)
        part, done = self._plan.positions(epoch, step)[worker.id if worker is not None else 0]
        # What came before a position is read once more: the pool and the lanes depend on it.
        return islice(self._start(epoch, part), done, None)


class StreamStart:
    """Start of the pipe of one part of a stream, built from the pipes of this module."""

    def __init__(self, plan: StreamPlan, dataset: StreamDataset) -> None:
        self._plan = plan
        self._dataset = dataset

    def __call__(self, epoch: int, part: int) -> Iterator[list[Record]]:
        """Yields the batches of ``part`` in ``epoch``, or in all epochs if the plan is endless."""
        return self._plan.cut(lambda: self._records(epoch, part), epoch, part)

    def _records(self, epoch: int, part: int) -> IterDataPipe[Record]:
        plan = self._plan
        sources = StreamFiles(plan, epoch, part).read_records(self._dataset)
        records = Interleave(sources, plan.interleave, plan.interleave_prefetch, plan.interleave_buffer)
        drawn = ShufflePool(records, plan.pool, seed=plan.key(epoch, part), repeat=plan.endless)
        return DecodeRecords(drawn, self._dataset) if self._dataset.decodes else drawn


@functional_datapipe("assemble_batches")
class BatchAssembler(IterDataPipe[Fetched]):
    """DataPipe that makes tensors of records, the last stage of every pipe: ``batches.assemble_batches(fmt.specs())``.

    An error that the user should see becomes the last item, so that it survives a loader worker.

    Args:
        source: batches of records.
        specs: arrays of a record.
        recorder: takes spans ``preprocess`` and ``collate``, and how each batch came to be.
        preprocess: CPU time to spend on each sample.
        check: looks at each batch, and raises what is wrong with it.
    """

    def __init__(
        self,
        source: IterDataPipe[list[Record]],
        specs: Sequence[ArraySpec],
        recorder: Recorder = NULL,
        preprocess: Preprocess | None = None,
        check: Callable[[Batch], None] | None = None,
    ) -> None:
        super().__init__()
        self._source = source
        self._specs = list(specs)
        self._recorder = recorder
        self._batch_recorder = BatchRecorder(recorder)
        self._preprocess = preprocess
        self._check = check

    def __iter__(self) -> Iterator[Fetched]:
        return self._run()

    def _run(self) -> Iterator[Fetched]:
        recorder = self._batch_recorder
        try:
            source = iter(self._source)
            while True:
                begun = recorder.begin()
                records = next(source, None)
                if records is None:
                    return
                yield recorder.end(begun, self._assemble(records))
        except DlioError as error:
            yield failed(error)

    def _assemble(self, records: list[Record]) -> Batch:
        add, clock = self._recorder.add, time.perf_counter_ns
        if self._preprocess is not None:
            began = clock()
            self._preprocess.burn(len(records))
            add("preprocess", began, clock())
        began = clock()
        batch = collated(self._specs, records, batch_allocator())
        add("collate", began, clock(), bytes=batch_bytes(batch))
        if self._check is not None:
            self._check(batch)
        return batch


class _Share(IterDataPipe[list[Record]]):
    """Share of batches that one of several threads reads."""

    def __init__(self, stream: PipeStream, number: int) -> None:
        super().__init__()
        self._stream = stream
        self._number = number

    def __iter__(self) -> Iterator[list[Record]]:
        return self._stream.round_robin.share(self._number)


class PipeStream:
    """Pipe with everything that a loader needs to run it, in one or several threads.

    Args:
        batches: batches of records of the rank.
        assemble: gives a pipe of batches of tensors over a pipe of batches of records.
        threads: threads that take batches in turn; they read one after another and assemble side by side.
        recorder: takes the threads' waits for their turn.
    """

    def __init__(
        self,
        batches: RecordBatches,
        assemble: Callable[[IterDataPipe[list[Record]]], IterDataPipe[Fetched]],
        threads: int,
        recorder: Recorder = NULL,
    ) -> None:
        self._batches = batches
        self._threads = threads
        self._recorder = recorder
        self.round_robin: RoundRobin[list[Record]] = RoundRobin(batches, threads, recorder)
        shares = [_Share(self, number) for number in range(threads)] if threads > 1 else [batches]
        self.pipes = [assemble(share) for share in shares]
        """The pipe of each thread."""

    def begin(self, epoch: int, step: int) -> None:
        """The next iteration of all pipes is ``epoch``, from batch ``step`` on."""
        self.end()
        self._batches.begin(epoch, step)
        self.round_robin = RoundRobin(self._batches, self._threads, self._recorder)

    def end(self) -> None:
        """Stop threads from waiting for each other."""
        self.round_robin.end()
