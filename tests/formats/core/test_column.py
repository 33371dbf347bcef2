"""Content made in pieces: the same elements however they are cut, in order, and no more ahead than asked for."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from concurrent.futures import Executor, ThreadPoolExecutor

import numpy as np
import pytest

from dlio_torch.formats.core import payload
from dlio_torch.formats.core.batch import ArraySpec
from dlio_torch.formats.core.column import PIECE_BYTES, Column
from dlio_torch.formats.core.ordered_map import in_order


@pytest.fixture
def pool() -> Iterator[Executor]:
    with ThreadPoolExecutor(3) as executor:
        yield executor


def column(dtype: str, shape: tuple[int, ...], mean: float = 0.0) -> Column:
    def rows(first: int, count: int) -> np.ndarray:
        return payload.lengths(5, 2, first, count, mean, mean / 4)

    return Column(ArraySpec("data", np.dtype(dtype), shape, variable=mean > 0), 5, 2, rows, mean or 1, 0.25)


COLUMNS = [
    pytest.param(column("uint8", (3,)), 360_000, id="tiny"),
    pytest.param(column("float32", (100, 1000)), 7, id="several to a piece"),
    pytest.param(column("float16", (3, 1000, 301)), 2, id="cut"),
    pytest.param(column("int64", (5,), mean=9000), 12, id="variable"),
    pytest.param(column("bool", (), mean=3.0 * PIECE_BYTES), 3, id="variable and cut"),
]


@pytest.mark.parametrize(("made", "count"), COLUMNS)
def test_pieces_and_blocks_are_the_content(made: Column, count: int, pool: Executor) -> None:
    content = made.content(17, count)
    sample = np.random.default_rng(1).integers(count)
    alone = payload.array(
        payload.rng(5, 17 + int(sample), 2), content[sample].shape, made.spec.dtype, made.compressibility
    )
    assert content[sample].tobytes() == alone.tobytes()
    whole = b"".join(one.tobytes() for one in content) if count < 100 else np.concatenate(content).tobytes()
    sizes = []
    joined = bytearray()
    for piece in made.pieces(17, count, pool):
        assert piece.dtype == np.uint8
        sizes.append(len(piece))
        joined += piece.data
    assert joined == whole
    assert max(sizes) < 2 * PIECE_BYTES
    assert b"".join(block.tobytes() for block in made.blocks(17, count, pool)) == whole


def test_the_memory_of_pieces_is_used_again(pool: Executor) -> None:
    made = column("uint8", (PIECE_BYTES,))
    places = {piece.__array_interface__["data"][0] for piece in made.pieces(0, 60, pool)}
    assert len(places) <= 12


def test_results_come_in_order_and_not_too_far_ahead(pool: Executor) -> None:
    begun: list[int] = []
    for taken, result in enumerate(in_order(pool, lambda item: (begun.append(item), item)[1], range(50), 4)):
        assert result == taken
        assert len(begun) <= taken + 4
    assert sorted(begun) == list(range(50))


@pytest.mark.parametrize("count", [0, 1])
def test_a_single_item_needs_no_thread(pool: Executor, count: int) -> None:
    assert list(in_order(pool, lambda _: threading.get_ident(), range(count), 4)) == [threading.get_ident()] * count


def test_nothing_is_begun_after_a_failure() -> None:
    with ThreadPoolExecutor(1) as pool:
        begun: list[int] = []

        def work(item: int) -> None:
            begun.append(item)
            if item == 1:
                raise ValueError

        with pytest.raises(ValueError, match=r"^$"):
            list(in_order(pool, work, range(100), 3))
    assert len(begun) <= 5
