"""Which record of a batch is blamed: rehearsals are a function of what is bad."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from fencepost.batch import Range
from fencepost.driver.recovery.bisection import Piece
from fencepost.driver.recovery.failing_record import failing_record
from fencepost.errors import BatchFailed, RecordFailed

BATCH = (Range("t", 0, 10, 20), Range("t", 1, 0, 5))


def rehearsal(fails: Callable[[str, int], bool], tried: list[Piece] | None = None) -> Callable[[Piece], int]:
    def rehearse(piece: Piece) -> int:
        if tried is not None:
            tried.append(piece)
        records = [(part.key, offset) for part in piece for offset in range(part.start, part.until)]
        for key, offset in records:
            if fails(key, offset):
                raise RecordFailed(f"{key} {offset} is bad")
        return len(records)

    return rehearse


@pytest.mark.parametrize("bad", [("t/0", 10), ("t/0", 17), ("t/1", 4)])
def test_the_record_that_fails_alone_is_named(bad: tuple[str, int]) -> None:
    found = failing_record(BATCH, rehearsal(lambda key, offset: (key, offset) == bad))
    assert found is not None
    assert found.record == bad
    assert f"{bad[0]}@{bad[1]} fails each time" in found.message
    assert "dead-letters skip" in found.remedy


def test_no_record_is_named_where_all_fail_or_none_does_alone() -> None:
    """Of a batch that fails for its state each record passes."""
    assert failing_record(BATCH, rehearsal(lambda *_: True)) is None
    assert failing_record(BATCH, rehearsal(lambda *_: False)) is None
    assert failing_record((Range("t", 0, 7, 8),), rehearsal(lambda *_: True)) is None


def test_a_batch_without_records_is_not_searched() -> None:
    """A timer that raises, in code that cannot be called without a stream."""

    def rehearse(_: Piece) -> int:
        raise RecordFailed("only for streams")

    assert failing_record((), rehearse) is None


def test_a_record_that_passes_the_second_time_is_not_named() -> None:
    tried: list[Piece] = []

    def fails(key: str, offset: int) -> bool:
        return (key, offset) == ("t/0", 12) and ((Range("t", 0, 12, 13),) not in tried[:-1])

    assert failing_record(BATCH, rehearsal(fails, tried)) is None


def test_what_no_record_is_to_blame_for_is_raised() -> None:
    def rehearse(_: Piece) -> int:
        raise BatchFailed("no executor")

    with pytest.raises(BatchFailed):
        failing_record(BATCH, rehearse)
