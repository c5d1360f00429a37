"""Ids of files: each is in a range that was stored before the id was used."""

from __future__ import annotations

import random
from collections.abc import Callable
from uuid import UUID

import pytest

from fakes.clock import Clock
from fencepost.fence import FenceUnavailable
from fencepost.fence.patience import Patience
from fencepost.state.file_ids import RANGE, FileIds, FileRange
from fencepost.state.memory import MemoryFileIndex

ONCE = Patience(0)


def random_ids(seed: int) -> Callable[[], UUID]:
    generator = random.Random(seed)
    return lambda: UUID(int=generator.getrandbits(128))


def test_each_id_is_new_and_in_a_stored_range() -> None:
    index = MemoryFileIndex()
    ids, others = FileIds(index, ONCE, random=random_ids(1)), FileIds(index, ONCE, random=random_ids(2))
    given = [each.next() for _ in range(RANGE + 5) for each in (ids, others)]
    assert len(set(given)) == len(given)
    assert set(given) <= {id for found in index.ranges() for id in found.ids(found.numbers)}  # noqa: A001
    assert len(index.ranges()) == 4
    assert all(id not in ids.unused for id in given)  # noqa: A001
    unused = ids.unused
    assert ids.next() in unused
    assert len(ids.unused) == len(unused) - 1


def test_no_id_is_given_out_before_its_range_is_stored() -> None:
    index = MemoryFileIndex()
    ids = FileIds(index, ONCE)

    def fail(_call: str) -> None:
        raise FenceUnavailable("no answer")

    index.after = fail
    with pytest.raises(FenceUnavailable):
        ids.next()
    index.after = lambda _call: None
    file = ids.next()
    assert any(file in found.ids(found.numbers) for found in index.ranges())


def test_an_index_that_does_not_answer_is_asked_again() -> None:
    clock, index = Clock(), MemoryFileIndex()

    def fail(_call: str) -> None:
        if clock.seconds < 3:
            raise FenceUnavailable("no answer")

    index.before = fail
    file = FileIds(index, Patience(5, clock.monotonic, clock.sleep)).next()
    assert any(file in found.ids(found.numbers) for found in index.ranges())


def test_what_is_left_of_a_range_keeps_its_numbers() -> None:
    found = FileRange(first=UUID(int=RANGE), left=frozenset({5, 7}))
    assert found.ids(sorted(found.numbers)) == [UUID(int=RANGE + 5), UUID(int=RANGE + 7)]
