"""The search for records that fail alone, over every kind of batch: it finds exactly these, in order, in few tries."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fencepost.batch import Range, Watermarks
from fencepost.driver.recovery.bisection import WITNESSES, Bisection, Piece, halves, size, witnesses

Place = tuple[str, int]


def places(piece: Piece) -> list[Place]:
    return [(part.key, offset) for part in piece for offset in range(part.start, part.until)]


@st.composite
def batches(draw: st.DrawFn) -> Piece:
    sizes = draw(st.lists(st.integers(1, 60), min_size=1, max_size=5))
    return tuple(Range("t", index, 10 * index, 10 * index + count) for index, count in enumerate(sizes))


@st.composite
def poisoned(draw: st.DrawFn) -> tuple[Piece, set[Place]]:
    batch = draw(batches())
    return batch, draw(st.sets(st.sampled_from(places(batch)), min_size=0, max_size=6))


def search(batch: Piece, poison: set[Place]) -> tuple[list[Place], list[Place], int]:
    """Run an isolation; return what was committed, what was found, both in order, and the number of tries."""
    bisection, committed, found, tries = Bisection(batch), list[Place](), list[Place](), 0
    while (piece := bisection.piece) is not None:
        tries += 1
        if poison.isdisjoint(places(piece)):
            committed += places(piece)
        else:
            suspect = bisection.failed()
            if suspect is None:
                continue
            found.append((suspect.key, suspect.start))
        bisection.done()
    return committed, found, tries


@given(poisoned())
def test_exactly_the_poison_is_found_and_all_else_is_committed_in_order(case: tuple[Piece, set[Place]]) -> None:
    batch, poison = case
    committed, found, tries = search(batch, poison)
    order = {place: index for index, place in enumerate(places(batch))}
    assert found == sorted(poison, key=order.__getitem__)
    assert committed == [place for place in order if place not in poison]
    assert tries <= 2 + 2 * len(poison) * math.ceil(math.log2(max(2, size(batch))))


@given(batches().filter(lambda batch: size(batch) > 1))
def test_halves_are_as_large_as_each_other_and_follow_one_another(batch: Piece) -> None:
    first, second = halves(batch)
    assert places(first) + places(second) == places(batch)
    assert size(second) - size(first) in {0, 1}


def test_a_leader_epoch_belongs_to_the_start_of_a_range_alone() -> None:
    first, second = halves((Range("t", 0, 0, 4, 7, "id"),))
    assert (first[0].leader_epoch, second[0].leader_epoch) == (7, None)
    assert (first[0].topic_id, second[0].topic_id) == ("id", "id")


@given(poisoned().filter(lambda case: bool(case[1])), st.data())
def test_a_witness_is_never_the_suspect_and_is_in_the_log(case: tuple[Piece, set[Place]], data: st.DataObject) -> None:
    batch, poison = case
    key, offset = data.draw(st.sampled_from(sorted(poison)))
    log = Watermarks(
        begins={part.key: max(0, part.start - 3) for part in batch},
        ends={part.key: part.until + 2 for part in batch},
        topic_ids={},
    )
    found = list(witnesses(Range("t", int(key[2:]), offset, offset + 1), batch, log))
    assert 0 < len(found) <= WITNESSES
    assert (key, offset) not in places(tuple(found))
    assert all(log.begins[part.key] <= part.start < part.until <= log.ends[part.key] for part in found)


@pytest.mark.parametrize(("begin", "end", "expected"), [(5, 6, []), (0, 6, [(0, 5), (2, 5)]), (5, 8, [(6, 8), (7, 8)])])
def test_the_witnesses_of_a_batch_of_one_record_are_its_neighbours(
    begin: int, end: int, expected: list[tuple[int, int]]
) -> None:
    log = Watermarks(begins={"t/0": begin}, ends={"t/0": end}, topic_ids={})
    only = Range("t", 0, 5, 6)
    assert [(part.start, part.until) for part in witnesses(only, [only], log)] == expected
