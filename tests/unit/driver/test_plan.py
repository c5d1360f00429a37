"""Planning: what is read next, from where, and when the log has lost something."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fencepost.batch import Batch, Range, Watermarks, between
from fencepost.contract import StartingOffsets
from fencepost.driver.plan import advance, next_batch, resume, shares, start_at, starting
from fencepost.errors import BadSpec, DataLoss
from fencepost.fence import FenceRow
from fencepost.spark.tasks import slices

LOG = Watermarks(
    begins={"a/0": 0, "a/1": 5, "b/0": 0}, ends={"a/0": 10, "a/1": 25, "b/0": 0}, topic_ids={"a": "id-a", "b": "id-b"}
)
ROW = FenceRow(pipeline="p", owner="o")


def test_earliest_latest_and_a_map_of_offsets() -> None:
    assert start_at(LOG, ["a"], StartingOffsets()) == {"a/0": 0, "a/1": 5}
    assert start_at(LOG, ["a", "b"], StartingOffsets(position="latest")) == {"a/0": 10, "a/1": 25, "b/0": 0}
    assert start_at(LOG, ["a"], StartingOffsets(partitions={"a/1": 7})) == {"a/0": 0, "a/1": 7}
    ahead = StartingOffsets(position="latest", partitions={"a/1": 7})
    assert start_at(LOG, ["a"], ahead) == {"a/0": 10, "a/1": 7}


def test_starting_offsets_that_the_log_does_not_hold_are_a_bad_spec() -> None:
    with pytest.raises(BadSpec, match=r"a/1=3 is outside the log, which holds \[5, 25\)"):
        start_at(LOG, ["a"], StartingOffsets(partitions={"a/1": 3}))


def test_an_absent_topic_is_a_bad_spec() -> None:
    with pytest.raises(BadSpec, match="topic 'c' does not exist") as caught:
        resume(ROW, LOG, ["a", "c"], StartingOffsets())
    assert caught.value.reason == "TopicNotFound"


def test_the_committed_offsets_win_over_the_spec() -> None:
    row = replace(ROW, offsets={"a/0": 3, "a/1": 9}, topic_ids={"a": "id-a"})
    assert resume(row, LOG, ["a"], StartingOffsets(position="latest")) == {"a/0": 3, "a/1": 9}


def test_a_grown_partition_starts_at_zero_and_a_new_topic_where_the_spec_says() -> None:
    row = replace(ROW, offsets={"a/1": 9}, topic_ids={"a": "id-a"})
    assert resume(row, LOG, ["a", "b"], StartingOffsets(position="latest")) == {"a/0": 0, "a/1": 9, "b/0": 0}


def test_a_topic_that_left_the_spec_keeps_its_offsets_and_is_not_checked() -> None:
    row = replace(ROW, offsets={"gone/0": 4, "b/0": 0}, topic_ids={"gone": "x", "b": "id-b"})
    assert resume(row, LOG, ["b"], StartingOffsets()) == {"gone/0": 4, "b/0": 0}


@pytest.mark.parametrize(
    ("offsets", "ids", "reason", "message"),
    [
        ({"a/0": 0, "a/1": 2}, {"a": "id-a"}, "OffsetOutOfRange", r"a/1: offsets \[2, 5\) are gone"),
        ({"a/0": 11, "a/1": 5}, {"a": "id-a"}, "LogTruncated", "ends at 10, before the committed offset 11"),
        ({"a/0": 0, "a/1": 5}, {"a": "old"}, "TopicRecreated", "its id is id-a, the committed offsets are of old"),
    ],
)
def test_what_the_log_lost(offsets: dict[str, int], ids: dict[str, str], reason: str, message: str) -> None:
    with pytest.raises(DataLoss, match=message) as caught:
        advance(offsets, ids, LOG, ["a"])
    assert caught.value.reason == reason


def test_a_deleted_topic_that_was_read_before_is_data_loss_not_a_bad_spec() -> None:
    row = replace(ROW, offsets={"c/0": 1}, topic_ids={"c": "id-c"})
    with pytest.raises(DataLoss, match="gone"):
        resume(row, LOG, ["c"], StartingOffsets())


def test_a_grown_partition_that_already_lost_records_is_data_loss() -> None:
    with pytest.raises(DataLoss, match=r"a/1: offsets \[0, 5\)"):
        advance({"a/0": 0}, {"a": "id-a"}, LOG, ["a"])


def test_no_records_no_batch() -> None:
    assert next_batch({"a/0": 10, "a/1": 25}, LOG, ["a"], 100).is_empty


def test_the_short_partition_is_read_whole_and_the_long_one_gets_the_rest() -> None:
    batch = next_batch({"a/0": 8, "a/1": 5}, LOG, ["a"], 10)
    assert batch.ranges == (Range("a", 0, 8, 10), Range("a", 1, 5, 13))
    assert batch.until == {"a/0": 10, "a/1": 13}
    assert batch.spans() == {"a/0": (8, 10), "a/1": (5, 13)}


@given(st.dictionaries(st.text(min_size=1), st.integers(1, 10**9)), st.integers(1, 10**6))
def test_shares_fill_the_limit_and_no_partition_waits_for_another(lag: dict[str, int], limit: int) -> None:
    granted = shares(lag, limit)
    assert sum(granted.values()) == min(limit, sum(lag.values()))
    assert all(0 < count <= lag[key] for key, count in granted.items())
    cut = [granted.get(key, 0) for key in lag if granted.get(key, 0) < lag[key]]
    if cut:
        assert max(cut) - min(cut) <= 1
        # Where there are more partitions than records to grant, some get one and the others none.
        assert max(granted.values()) <= max(1, *cut)


def test_with_fewer_records_than_partitions_the_longest_backlogs_come_first() -> None:
    assert shares({"a/0": 1, "a/1": 900, "a/2": 5}, 1) == {"a/1": 1}
    assert shares({"a/0": 1, "a/1": 900, "a/2": 5}, 2) == {"a/1": 1, "a/2": 1}


def test_a_first_claim_pins_the_start_and_plans_the_first_batch() -> None:
    found = starting(ROW, LOG, ["a"], StartingOffsets(), 8)
    assert found.offsets == {"a/0": 0, "a/1": 5}
    assert found.planned == {"a/0": 4, "a/1": 9}
    assert found.topic_ids == {"a": "id-a"}


def test_a_claim_keeps_the_batch_that_a_predecessor_planned_whatever_the_limit_is_now() -> None:
    row = replace(
        ROW, offsets={"a/0": 2, "a/1": 5}, planned={"a/0": 2, "a/1": 20}, topic_ids={"a": "id-a"}, epoch=3, driver=None
    )
    found = starting(row, LOG, ["a"], StartingOffsets(), 1)
    assert found.planned == {"a/0": 2, "a/1": 20}


def test_a_planned_batch_of_a_topic_that_left_the_spec_is_dropped() -> None:
    row = replace(ROW, offsets={"c/0": 2, "b/0": 0}, planned={"c/0": 9, "b/0": 0}, topic_ids={"c": "x", "b": "id-b"})
    assert starting(row, LOG, ["b"], StartingOffsets(), 5).planned == {"c/0": 2, "b/0": 0}


def test_a_planned_batch_keeps_a_partition_that_grew_while_it_was_planned() -> None:
    row = replace(ROW, offsets={"a/0": 2}, planned={"a/0": 4, "g/9": 1, "a/1": 7}, topic_ids={"a": "id-a"})
    log = replace(LOG, begins={**LOG.begins, "a/1": 0})
    found = starting(row, log, ["a"], StartingOffsets(), 100)
    assert found.offsets == {"a/0": 2, "a/1": 0}
    assert found.planned == {"a/0": 4, "a/1": 7}


def test_between_starts_a_grown_partition_at_zero() -> None:
    assert between({"a/0": 3}, {"a/0": 5, "a/1": 2}).ranges == (Range("a", 0, 3, 5), Range("a", 1, 0, 2))
    assert between({"a/0": 3}, {"a/0": 5, "a/1": 0}).until == {"a/0": 5}


def test_between_reads_only_what_grows() -> None:
    assert between({"a/0": 3, "a/1": 4}, {"a/0": 3, "a/1": 6}) == Batch((Range("a", 1, 4, 6),), {"a/0": 3, "a/1": 6})


def test_a_small_batch_is_one_task() -> None:
    ranges = [Range("a", partition, 0, 250) for partition in range(4)]
    assert slices(ranges, 2) == [tuple(ranges)]


def test_a_large_partition_is_shared_by_the_tasks() -> None:
    parts = slices([Range("a", 0, 0, 90_000), Range("a", 1, 5, 10_005)], 4)
    assert [sum(part.records for part in piece) for piece in parts] == [25_000] * 4
    assert parts[3] == (Range("a", 0, 75_000, 90_000), Range("a", 1, 5, 10_005))


@given(
    st.lists(st.tuples(st.integers(0, 1000), st.integers(0, 20_000)), max_size=12),
    st.integers(1, 16),
)
def test_slices_cover_each_offset_once(spans: list[tuple[int, int]], tasks: int) -> None:
    ranges = [Range("t", number, start, start + length) for number, (start, length) in enumerate(spans)]
    parts = slices(ranges, tasks)
    assert 1 <= len(parts) <= tasks
    for part in ranges:
        pieces = sorted(piece for slice_ in parts for piece in slice_ if piece.partition == part.partition)
        covered = [offset for piece in pieces for offset in (piece.start, piece.until)]
        expected = [] if part.records == 0 else [part.start, part.until]
        assert ([covered[0], covered[-1]] if covered else []) == expected
        assert covered[1:-1:2] == covered[2::2]
