"""Since when a purge index is complete: a mark never says more than the entries that a purge would find."""

from __future__ import annotations

from collections import defaultdict
from typing import cast

import pytest

from fencepost.sinks.cassandra.index_completeness import Mark, MarkTable, OpenLedger, complete_from
from fencepost.sinks.interface import BatchToken

DAY = 86_400
MICRO = 1_000_000
KEY = "orders/0"


class Marks:
    """The marks in memory."""

    def __init__(self) -> None:
        self.rows: dict[str, list[Mark]] = defaultdict(list)

    def read(self, key: str) -> list[Mark]:
        return sorted(self.rows[key])

    def write(self, key: str, mark: Mark) -> None:
        self.rows[key] = [other for other in self.rows[key] if other.offset != mark.offset] + [mark]

    def remove(self, key: str, *, at: int) -> None:
        self.rows[key] = [mark for mark in self.rows[key] if mark.written > at]


@pytest.fixture
def marks() -> Marks:
    return Marks()


def run(marks: Marks) -> OpenLedger:
    return OpenLedger(cast(MarkTable, marks), 7 * DAY)


def batch(start: int, day: float, *, is_repeated: bool = False) -> BatchToken:
    return BatchToken(
        pipeline="shop/orders",
        epoch=1,
        version=1,
        token=round(day * DAY * MICRO),
        offsets={KEY: (start, start + 100)},
        is_repeated=is_repeated,
    )


def complete(marks: Marks, day: float) -> int | None:
    return complete_from(marks.read(KEY), now=day * DAY)


def test_an_index_is_complete_from_its_first_batch(marks: Marks) -> None:
    ledger = run(marks)
    for number in range(5):
        ledger.begin(batch(500 + 100 * number, day=100 + number / 100))
    assert complete(marks, 101) == 500


def test_a_batch_that_may_have_rows_of_an_earlier_try_renews_no_mark(marks: Marks) -> None:
    run(marks).begin(batch(500, day=100))
    run(marks).begin(batch(500, day=103, is_repeated=True))
    assert complete(marks, 108) is None, "the entries of the first try have expired"


def test_a_rewind_that_keeps_its_output_renews_no_mark(marks: Marks) -> None:
    ledger = run(marks)
    ledger.begin(batch(500, day=100))
    ledger.begin(batch(900, day=101))
    run(marks).begin(batch(500, day=103))
    assert complete(marks, 108) is None, "the entries of the first pass have expired"


def test_a_topic_that_begins_again_gets_a_mark_once_the_old_ones_have_expired(marks: Marks) -> None:
    ledger = run(marks)
    ledger.begin(batch(1_000_000, day=100))
    ledger.begin(batch(0, day=110))
    assert complete(marks, 111) == 0
