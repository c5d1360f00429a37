"""A broken promise is reported with the changes of the fence row and the faults that belong to it."""

from __future__ import annotations

from dataclasses import replace

from campaign.checker import Output, Row, places
from campaign.diagnosis import around, of_places, ranges
from flights.history import HistoryRow
from harness.faults.schedule import Played

TOPIC = "t"
COMMITS = [
    HistoryRow(epoch=1, driver="d", version=at, clock=at, offsets={"t/0": at * 10}, written_at=at * 100_000_000)
    for at in range(10)
]


def test_offsets_without_a_gap_are_one_range() -> None:
    """Of each partition on its own."""
    assert ranges([(0, 7), (0, 5), (0, 6), (1, 8), (0, 9)]) == [(0, 5, 7), (0, 9, 9), (1, 8, 8)]


def test_the_changes_around_the_commit_of_a_record_are_shown() -> None:
    """Three before its commit, and the commit with two after it."""
    assert [one.version for one in around(COMMITS, TOPIC, (0, 45))] == [2, 3, 4, 5, 6, 7]
    assert around(COMMITS, TOPIC, (1, 45)) == []


def test_a_rewind_that_went_back_over_a_record_is_shown_too() -> None:
    """Whoever lost the record may have done so when it was processed again."""
    back = [*COMMITS, replace(COMMITS[2], version=10), *(replace(one, version=one.version + 8) for one in COMMITS[3:])]
    assert 10 in [one.version for one in around(back, TOPIC, (0, 45))]


def test_missing_records_are_reported_with_the_faults_before_their_commit() -> None:
    """And not with those that were over long before, or came later."""
    faults = [
        Played("kill", "long before", began=10.0, ended=20.0),
        Played("kill", "just before", began=100.0, ended=190.0),
        Played("kill", "later", began=900.0),
    ]
    said = "\n".join(of_places([(0, 45), (0, 46)], COMMITS, faults, topic=TOPIC, monotonic=0.0))
    assert "t/0 offsets 45 to 46:" in said
    assert "version 5 epoch 1 driver d committed 0:50 planned none" in said
    assert "just before" in said
    assert "long before" not in said
    assert "later" not in said


def test_the_places_of_differences_are_those_of_rows_and_letters() -> None:
    """Of a key whose row is wrong, the records of both rows."""
    right, older = Row((0, 4), 5, "five"), Row((0, 1), 3, "three")
    wanted = Output({(0, 1): older, (0, 4): right}, {"a": right}, frozenset({(1, 0)}))
    assert places(wanted, wanted) == set()
    assert places(replace(wanted, records={(0, 1): older}), wanted) == {(0, 4)}
    assert places(replace(wanted, names={"a": older}), wanted) == {(0, 1), (0, 4)}
    assert places(replace(wanted, letters=frozenset({(2, 2)})), wanted) == {(1, 0), (2, 2)}
