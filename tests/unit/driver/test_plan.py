"""Planning: what is read next, from where, and when the log has lost something."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import astuple, replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fencepost.batch import Batch, Range, Watermarks, between
from fencepost.contract import StartingOffsets
from fencepost.driver.planning.plan import (
    Position,
    advance,
    after,
    next_batch,
    resume,
    shares,
    start_at,
    starting,
    unresolved,
    up_to,
)
from fencepost.errors import BadSpec, DataLoss
from fencepost.fence import FenceRow
from fencepost.spark.tasks.assignment import Assignment
from fencepost.spark.tasks.slicing import slices

LOG = Watermarks(
    begins={"a/0": 0, "a/1": 5, "b/0": 0}, ends={"a/0": 10, "a/1": 25, "b/0": 0}, topic_ids={"a": "id-a", "b": "id-b"}
)
ROW = FenceRow(pipeline="p", owner="o")


def test_earliest_latest_and_a_map_of_offsets() -> None:
    assert start_at(LOG, ["a"], StartingOffsets()) == {"a/0": 0, "a/1": 5}
    assert start_at(LOG, ["a", "b"], StartingOffsets(position="latest")) == {"a/0": 10, "a/1": 25, "b/0": 0}
    for offset in (5, 7, 25):
        assert start_at(LOG, ["a"], StartingOffsets(partitions={"a/1": offset})) == {"a/0": 0, "a/1": offset}
    ahead = StartingOffsets(position="latest", partitions={"a/1": 7})
    assert start_at(LOG, ["a"], ahead) == {"a/0": 10, "a/1": 7}


def test_starting_offsets_that_the_log_does_not_hold_are_a_bad_spec() -> None:
    with pytest.raises(BadSpec, match=r"a/1=3 is outside the log, which holds \[5, 25\)"):
        start_at(LOG, ["a"], StartingOffsets(partitions={"a/1": 3}))


OPEN = replace(LOG, high={"a/0": 15, "a/1": 25, "b/0": 0})
"""An open transaction withholds the records [10, 15) of a/0."""


@pytest.mark.parametrize("offset", [10, 12, 15])
def test_a_start_within_an_open_transaction_is_legal_and_waits_for_its_end(offset: int) -> None:
    """Injected: offset 12 of a log that ends at 15 was refused as long as a transaction was open at 10."""
    at = StartingOffsets(position="latest", partitions={"a/0": offset})
    claimed = starting(ROW, OPEN, ["a"], at, 100)
    assert claimed.offsets == claimed.planned == {"a/0": offset, "a/1": 25}
    assert unresolved(ROW, OPEN, ["a"]) == ""
    position = Position(offsets=claimed.offsets, barrier=claimed.growth_barrier)
    waiting = after(position, claimed.topic_ids, OPEN, ["a"], 100)
    assert (waiting.batch.is_empty, waiting.position, waiting.lag) == (True, position, 0)
    row = replace(ROW, offsets=claimed.offsets, planned=claimed.planned, topic_ids=claimed.topic_ids)
    assert starting(row, OPEN, ["a"], at, 100).planned == claimed.planned
    ended = replace(OPEN, ends={**OPEN.ends, "a/0": 16}, high={"a/0": 16})
    read = after(position, claimed.topic_ids, ended, ["a"], 100)
    assert read.batch.spans() == {"a/0": (offset, 16)}


def test_a_start_beyond_the_high_watermark_is_a_bad_spec() -> None:
    with pytest.raises(BadSpec, match=r"a/0=16 is outside the log, which holds \[0, 15\)"):
        start_at(OPEN, ["a"], StartingOffsets(partitions={"a/0": 16}))


def test_an_absent_topic_is_a_bad_spec() -> None:
    with pytest.raises(BadSpec, match="topic 'c' does not exist") as caught:
        resume(ROW, LOG, ["a", "c"], StartingOffsets())
    assert caught.value.reason == "TopicNotFound"


def test_the_committed_offsets_win_over_the_spec() -> None:
    row = replace(ROW, offsets={"a/0": 3, "a/1": 9}, topic_ids={"a": "id-a"})
    assert resume(row, LOG, ["a"], StartingOffsets(position="latest")).offsets == {"a/0": 3, "a/1": 9}


def test_a_grown_partition_starts_at_zero_and_a_new_topic_where_the_spec_says() -> None:
    row = replace(ROW, offsets={"a/1": 25}, topic_ids={"a": "id-a"})
    found = resume(row, LOG, ["a", "b"], StartingOffsets(position="latest"))
    assert found == Position(offsets={"a/0": 0, "a/1": 25, "b/0": 0}, barrier={"a/0": 0, "a/1": 25})


def test_a_topic_that_left_the_spec_keeps_its_offsets_and_is_not_checked() -> None:
    row = replace(ROW, offsets={"gone/0": 4, "b/0": 0}, topic_ids={"gone": "x", "b": "id-b"})
    assert resume(row, LOG, ["b"], StartingOffsets()).offsets == {"gone/0": 4, "b/0": 0}


@pytest.mark.parametrize(
    ("offsets", "ids", "reason", "message"),
    [
        ({"a/0": 0, "a/1": 2}, {"a": "id-a"}, "OffsetOutOfRange", r"retention deleted 3 offsets .*: a/1 \[2, 5\)$"),
        (
            {"a/0": 11, "a/1": 5},
            {"a": "id-a"},
            "LogTruncated",
            r"truncated: 1 offsets of 1 partition .*: a/0 \[10, 11\)$",
        ),
        ({"a/0": 0, "a/1": 5}, {"a": "old"}, "TopicRecreated", "its id is id-a, the committed offsets belong to old"),
    ],
)
def test_what_the_log_lost(offsets: dict[str, int], ids: dict[str, str], reason: str, message: str) -> None:
    with pytest.raises(DataLoss, match=message) as caught:
        advance(Position(offsets=offsets, barrier={}), ids, LOG, ["a"])
    assert caught.value.reason == reason


def test_an_offset_beyond_the_last_stable_one_is_not_a_truncated_log() -> None:
    """Injected: read_uncommitted reached 12, then read_committed found an open transaction at 10: LogTruncated."""
    log = replace(LOG, high={"a/0": 15, "a/1": 25})
    row = replace(ROW, offsets={"a/0": 12, "a/1": 25}, planned={"a/0": 14, "a/1": 25}, topic_ids={"a": "id-a"})
    claimed = starting(row, log, ["a"], StartingOffsets(), 100)
    assert claimed.offsets == claimed.planned == row.offsets
    plan = after(Position(offsets=row.offsets, barrier={}), {"a": "id-a"}, log, ["a"], 100)
    assert (plan.batch.is_empty, plan.batch.until, plan.lag) == (True, row.offsets, 0)
    with pytest.raises(DataLoss, match=r"truncated.* a/0 \[15, 16\)"):
        advance(Position(offsets={"a/0": 16, "a/1": 25}, barrier={}), {"a": "id-a"}, log, ["a"])


def test_a_topic_that_kafka_does_not_know_is_deleted_only_once_all_answers_agreed_for_long() -> None:
    """Injected: a broker that has just started answers UNKNOWN_TOPIC once; the pipeline used to stop for good."""
    row = replace(ROW, offsets={"c/0": 1}, planned={"c/0": 4}, topic_ids={"c": "id-c"}, log_ends={"c/0": 9})
    for missing, last in (({}, {}), ({"c": 0.0}, {"c/0": 9}), ({"c": 29.9}, {"c/0": 9})):
        log = replace(LOG, missing=missing)
        found = starting(row, log, ["a", "c"], StartingOffsets(), 100)
        assert found.offsets == {"a/0": 0, "a/1": 5, "c/0": 1}
        assert found.planned == {"a/0": 10, "a/1": 25, "c/0": 1}  # what can be read is read
        assert found.topic_ids == {"a": "id-a", "c": "id-c"}
        assert found.log_ends == {"a/0": 10, "a/1": 25, **last}  # all that says how much was not read
    with pytest.raises(DataLoss, match="says so for 30 s") as caught:
        starting(row, replace(LOG, missing={"c": 30.0}), ["a", "c"], StartingOffsets(), 100)
    assert caught.value.reason == "TopicDeleted"


def test_the_start_of_a_new_topic_waits_for_kafka_to_agree_and_for_every_leader() -> None:
    assert unresolved(ROW, LOG, ["a", "b"]) == ""
    assert unresolved(ROW, LOG, ["a", "c"]) == "topic 'c' is not found"
    assert unresolved(ROW, replace(LOG, missing={"c": 31.0}), ["a", "c"]) == ""  # then it is a bad spec
    part = replace(LOG, leaderless=frozenset({"a/2"}))
    assert unresolved(ROW, part, ["a"]) == "a/2 has no leader"
    assert unresolved(replace(ROW, topic_ids={"a": "id-a"}), part, ["a"]) == ""


def test_a_partition_without_a_leader_is_left_out_and_named_and_the_others_continue() -> None:
    log = replace(LOG, begins={"a/1": 5}, ends={"a/1": 25}, leaderless=frozenset({"a/0"}))
    plan = after(Position(offsets={"a/0": 3, "a/1": 9}, barrier={}), {"a": "id-a"}, log, ["a"], 100)
    assert plan.batch.spans() == {"a/1": (9, 25)}
    assert plan.batch.until == {"a/0": 3, "a/1": 25}
    assert plan.unavailable == ("a/0",)
    assert plan.lag == 16


def test_a_planned_batch_leaves_out_a_partition_without_a_leader() -> None:
    row = replace(ROW, offsets={"a/0": 3, "a/1": 9}, planned={"a/0": 8, "a/1": 12}, topic_ids={"a": "id-a"})
    log = replace(LOG, begins={"a/1": 5}, ends={"a/1": 25})
    assert starting(row, log, ["a"], StartingOffsets(), 100).planned == {"a/0": 3, "a/1": 12}


def test_a_planned_batch_never_reaches_into_an_open_transaction() -> None:
    """A spec before it read uncommitted records."""
    row = replace(ROW, offsets={"a/0": 3, "a/1": 9}, planned={"a/0": 40, "a/1": 12}, topic_ids={"a": "id-a"})
    found = starting(row, replace(LOG, high={"a/0": 50, "a/1": 25}), ["a"], StartingOffsets(), 100)
    assert (found.planned, found.begun) == ({"a/0": 10, "a/1": 12}, {"a/0": 40})


def test_a_planned_batch_that_ends_beyond_the_log_is_a_truncated_log() -> None:
    row = replace(ROW, offsets={"a/0": 3, "a/1": 9}, planned={"a/0": 40, "a/1": 12}, topic_ids={"a": "id-a"})
    with pytest.raises(DataLoss, match=r"the log was truncated: .* a/0 \[10, 40\)"):
        starting(row, LOG, ["a"], StartingOffsets(), 100)


def test_a_claim_cuts_a_planned_batch_in_fair_shares() -> None:
    row = replace(ROW, offsets={"a/0": 0, "a/1": 5}, planned={"a/0": 2, "a/1": 25}, topic_ids={"a": "id-a"})
    cut = starting(row, LOG, ["a"], StartingOffsets(), 100, first_limit=6)
    assert cut.planned == {"a/0": 2, "a/1": 9}
    assert starting(row, LOG, ["a"], StartingOffsets(), 100, first_limit=22).planned == row.planned
    fresh = replace(row, planned=row.offsets)
    assert starting(fresh, LOG, ["a"], StartingOffsets(), 100, first_limit=6).planned == {"a/0": 3, "a/1": 8}
    # A size that is smaller for another reason cuts a batch that failed, and no other one.
    assert starting(row, LOG, ["a"], StartingOffsets(), 2, first_limit=6).planned == {"a/0": 1, "a/1": 6}
    assert starting(row, LOG, ["a"], StartingOffsets(), 2).planned == row.planned


@given(
    offsets=st.lists(st.integers(0, 50), min_size=1, max_size=6),
    planned=st.lists(st.integers(0, 50), min_size=6, max_size=6),
    limit=st.integers(1, 200),
)
def test_a_planned_batch_is_only_ever_cut_smaller(offsets: list[int], planned: list[int], limit: int) -> None:
    start = {f"t/{number}": offset for number, offset in enumerate(offsets)}
    until = {key: start[key] + more for key, more in zip(start, planned, strict=False)}
    log = Watermarks(begins=dict.fromkeys(start, 0), ends=dict.fromkeys(start, 100), topic_ids={"t": "i"})
    row = replace(ROW, offsets=start, planned=until, topic_ids={"t": "i"})
    found = starting(row, log, ["t"], StartingOffsets(), 1000, first_limit=limit)
    inherited = between(start, until)
    if inherited.is_empty:
        return
    assert all(start[key] <= found.planned[key] <= until[key] for key in start)
    assert between(start, found.planned).records == min(limit, inherited.records)


def test_the_epochs_of_a_claim_belong_to_its_offsets() -> None:
    row = replace(ROW, offsets={"a/0": 3}, topic_ids={"a": "id-a"}, leader_epochs={"a/0": 2}, epoch_starts={"a/0": 1})
    log = replace(LOG, begins=dict.fromkeys(LOG.begins, 0), leader_epochs={"a/0": 7, "a/1": 8, "b/0": 9})
    found = starting(row, log, ["a", "b"], StartingOffsets(), 100)
    assert found.leader_epochs == {"a/0": 2, "b/0": 9}
    assert found.epoch_starts == {"a/0": 1}  # that of b/0 is a leader's, which may be later than its records'
    assert "a/1" in found.growth_barrier  # it is held, and has no offset yet


GROWN = Watermarks(begins={"t/0": 0, "t/1": 0}, ends={"t/0": 10, "t/1": 4}, topic_ids={"t": "i"})


def position(offsets: dict[str, int], barrier: dict[str, int] | None = None) -> Position:
    return Position(offsets=offsets, barrier=barrier or {})


def test_a_new_partition_is_held_until_the_old_ones_reach_their_ends_at_the_discovery() -> None:
    """Injected: key k has an old value at t/0 [5] and, after the topic grew, a newer one at t/1 [0]."""
    found = advance(position({"t/0": 3}), {"t": "i"}, GROWN, ["t"])
    assert found == position({"t/0": 3}, {"t/0": 10, "t/1": 0})
    later = replace(GROWN, ends={"t/0": 50, "t/1": 9})
    assert advance(position({"t/0": 9}, dict(found.barrier)), {"t": "i"}, later, ["t"]).offsets == {"t/0": 9}
    through = advance(position({"t/0": 10}, dict(found.barrier)), {"t": "i"}, later, ["t"])
    assert through == position({"t/0": 10, "t/1": 0}, {"t/0": 10, "t/1": 0})
    assert after(position({"t/0": 3}), {"t": "i"}, later, ["t"], 100).lag == 47 + 9, "with all of what is held"


def test_a_new_partition_of_a_topic_that_is_read_to_its_end_is_read_at_once() -> None:
    found = advance(position({"t/0": 10}), {"t": "i"}, GROWN, ["t"])
    assert found == position({"t/0": 10, "t/1": 0}, {"t/0": 10, "t/1": 0})


def test_a_new_partition_waits_for_records_of_a_transaction_that_was_open_at_the_discovery() -> None:
    """Injected: t/0 [10, 12) is in an open transaction. The barrier was the last stable offset, so t/1 came first."""
    log = replace(GROWN, high={"t/0": 12, "t/1": 4})
    assert advance(position({"t/0": 10}), {"t": "i"}, log, ["t"]) == position({"t/0": 10}, {"t/0": 12, "t/1": 0})


def test_a_topic_that_grows_again_holds_its_newest_partition_for_those_that_are_held() -> None:
    barrier = {"t/0": 10, "t/1": 0}
    again = Watermarks(
        begins={"t/0": 0, "t/1": 0, "t/2": 0}, ends={"t/0": 30, "t/1": 8, "t/2": 1}, topic_ids={"t": "i"}
    )
    assert advance(position({"t/0": 9}, barrier), {"t": "i"}, again, ["t"]) == position({"t/0": 9}, barrier)
    found = advance(position({"t/0": 10}, barrier), {"t": "i"}, again, ["t"])
    assert found == position({"t/0": 10, "t/1": 0}, {"t/0": 30, "t/1": 8, "t/2": 0})


def test_a_new_partition_waits_while_an_old_one_has_no_leader() -> None:
    log = Watermarks(begins={"t/1": 0}, ends={"t/1": 4}, topic_ids={"t": "i"}, leaderless=frozenset({"t/0"}))
    assert advance(position({"t/0": 3}), {"t": "i"}, log, ["t"]) == position({"t/0": 3})


def test_growth_that_is_discovered_at_the_claim_is_held_too_and_survives_it() -> None:
    row = replace(ROW, offsets={"t/0": 3}, planned={"t/0": 5, "t/1": 2}, topic_ids={"t": "i"})
    found = starting(row, GROWN, ["t"], StartingOffsets(), 100)
    assert (found.offsets, found.planned) == ({"t/0": 3}, {"t/0": 5})
    assert found.growth_barrier == {"t/0": 10, "t/1": 0}
    claimed = replace(row, offsets={"t/0": 8}, planned={"t/0": 8}, growth_barrier=found.growth_barrier)
    later = replace(GROWN, ends={"t/0": 20, "t/1": 4})
    assert starting(claimed, later, ["t"], StartingOffsets(), 100).growth_barrier == found.growth_barrier


def test_a_held_partition_that_already_lost_records_is_data_loss() -> None:
    with pytest.raises(DataLoss, match=r"a/1 \[0, 5\)"):
        advance(position({"a/0": 0}), {"a": "id-a"}, LOG, ["a"])


class GrowingTopic:
    """A topic whose keys go to `key % partitions`, its reader, and the fence row between them.

    It doubles, so that a key moves to a new partition or stays, and the reader sees one growth before the next one.
    """

    def __init__(self) -> None:
        self.log: dict[str, list[tuple[int, int]]] = {"t/0": []}
        self.newest: dict[int, int] = {}
        self.row = replace(ROW, offsets={"t/0": 0}, planned={"t/0": 0}, topic_ids={"t": "i"})
        self.serial = 0
        self.is_seen = True

    def state(self) -> Watermarks:
        ends = {key: len(items) for key, items in self.log.items()}
        return Watermarks(begins=dict.fromkeys(ends, 0), ends=ends, topic_ids={"t": "i"})

    def write(self) -> None:
        for _ in range(3):
            for key in range(5):
                self.log[f"t/{key % len(self.log)}"].append((key, self.serial))
                self.serial += 1

    def grow(self) -> None:
        if self.is_seen and len(self.log) < 4:
            self.log |= {f"t/{number}": [] for number in range(len(self.log), 2 * len(self.log))}
            self.is_seen = False

    def claim(self) -> None:
        found = starting(self.row, self.state(), ["t"], StartingOffsets(), 1)
        self._move(found.offsets, found.growth_barrier)

    def read(self, limit: int) -> None:
        at = Position(offsets=self.row.offsets, barrier=self.row.growth_barrier)
        found = after(at, self.row.topic_ids, self.state(), ["t"], limit)
        before = dict(self.newest)  # the order of partitions within a batch is open
        for part in found.batch.ranges:
            for key, serial in self.log[part.key][part.start : part.until]:
                assert serial > before.get(key, -1), f"key {key} goes back to {serial}"
                self.newest[key] = max(self.newest.get(key, -1), serial)
        self._move({**found.position.offsets, **found.batch.until}, found.position.barrier)

    def _move(self, offsets: Mapping[str, int], barrier: Mapping[str, int]) -> None:
        self.row = replace(self.row, offsets=offsets, planned=offsets, growth_barrier=barrier)
        self.is_seen = True


@given(st.lists(st.one_of(st.sampled_from(["write", "grow", "claim"]), st.integers(1, 5)), max_size=40))
def test_whatever_grows_and_restarts_no_key_is_read_before_its_older_records(actions: list[str | int]) -> None:
    topic = GrowingTopic()
    for action in actions:
        match action:
            case int():
                topic.read(limit=action)
            case _:
                getattr(topic, action)()
    while topic.row.offsets != topic.state().ends:
        topic.read(limit=3)
    assert topic.row.growth_barrier.keys() <= topic.row.offsets.keys()  # nothing is held


def test_no_records_no_batch() -> None:
    assert next_batch({"a/0": 10, "a/1": 25}, LOG, ["a"], 100).is_empty


def test_the_short_partition_is_read_whole_and_the_long_one_gets_the_rest() -> None:
    batch = next_batch({"a/0": 8, "a/1": 5}, LOG, ["a"], 10)
    assert batch.ranges == (Range("a", 0, 8, 10), Range("a", 1, 5, 13))
    assert batch.until == {"a/0": 10, "a/1": 13}
    assert batch.spans() == {"a/0": (8, 10), "a/1": (5, 13)}


@given(st.dictionaries(st.text(min_size=1), st.integers(1, 10**9)), st.integers(0, 10**6))
def test_shares_fill_the_limit_and_no_partition_waits_for_another(lag: dict[str, int], beyond: int) -> None:
    limit = len(lag) + beyond
    granted = shares(lag, limit)
    assert sum(granted.values()) == min(limit, sum(lag.values()))
    assert all(0 < count <= lag[key] for key, count in granted.items())
    cut = [granted.get(key, 0) for key in lag if granted.get(key, 0) < lag[key]]
    if cut:
        assert max(cut) - min(cut) <= 1
        assert max(granted.values()) <= max(cut)


@given(st.lists(st.integers(0, 5), min_size=2, max_size=40), st.integers(1, 39), st.integers(0, 100))
def test_with_fewer_records_than_partitions_each_backlog_has_its_turn(
    backlogs: list[int], limit: int, start: int
) -> None:
    keys = [f"a/{partition}" for partition in range(len(backlogs))]
    offsets = dict.fromkeys(keys, start)
    ends = {key: start + backlog for key, backlog in zip(keys, backlogs, strict=True)}
    # What has a long backlog keeps it.
    ends |= {key: start + 10_000 for key, backlog in zip(keys, backlogs, strict=True) if backlog > 2}
    waiting = {key for key in keys if ends[key] > offsets[key]}
    log = replace(LOG, begins=dict.fromkeys(keys, 0), ends=ends)
    for _ in range(-(-len(keys) // limit)):
        batch = next_batch(offsets, log, ["a"], limit)
        waiting -= {part.key for part in batch.ranges}
        offsets |= batch.until
    assert not waiting


def test_of_equal_backlogs_the_last_partition_gets_what_is_left() -> None:
    assert shares({"a/1": 5, "a/0": 5}, 3) == {"a/0": 1, "a/1": 2}


def test_a_run_that_finishes_a_batch_reads_to_its_bound_and_nothing_of_other_partitions() -> None:
    offsets = {"a/0": 0, "a/1": 5}
    batch = next_batch(offsets, LOG, ["a"], 100)
    assert up_to(batch, offsets, {"a/1": 7}).until == {"a/0": 0, "a/1": 7}
    assert up_to(batch, offsets, {"a/0": 99, "a/1": 2}).until == {"a/0": 10, "a/1": 5}


def test_what_lies_beyond_the_bound_takes_no_share_of_the_batch() -> None:
    offsets = {"a/0": 0, "a/1": 5}
    assert next_batch(offsets, LOG, ["a"], 6, bound={"a/0": 6, "a/1": 2}).until == {"a/0": 6, "a/1": 5}
    assert next_batch(offsets, LOG, ["a"], 6, bound={"a/1": 7}).until == {"a/0": 0, "a/1": 7}


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


def test_each_task_knows_the_topic_s_id_and_the_first_piece_the_leader_epoch() -> None:
    whole = Range("a", 0, 5, 90_005, 7, "id", epoch_start=3)
    pieces = [piece for part in slices([whole], 4) for piece in part]
    assert [(piece.topic_id, piece.leader_epoch) for piece in pieces] == [("id", 7), *[("id", None)] * 3]
    assert [piece.epoch_start for piece in pieces] == [3, None, None, None]
    assignment = Assignment(slices=[tuple(pieces)], number=1, version=2, token=3, offsets={}, is_repeated=False)
    (found,) = Assignment.of_json(assignment.to_json()).slices
    assert [astuple(piece) for piece in found] == [astuple(piece) for piece in pieces]


def test_a_few_large_records_are_worth_several_tasks() -> None:
    ranges = [Range("a", 0, 0, 128)]
    assert len(slices(ranges, 4)) == 1
    assert len(slices(ranges, 4, record_size=1_000_000.0)) == 4
    assert len(slices(ranges, 4, record_size=10.0)) == 1


def test_a_partition_that_may_not_be_split_stays_in_one_task() -> None:
    ranges = [Range("a", number, 0, records) for number, records in enumerate([90_000, 10_000, 50_000, 30_000])]
    assert slices(ranges, 3, split=False) == [(ranges[0],), (ranges[2],), (ranges[3], ranges[1])]


@given(
    st.lists(st.tuples(st.integers(0, 1000), st.integers(0, 20_000)), max_size=12),
    st.integers(1, 16),
    st.none() | st.floats(0, 10**7),
)
def test_whole_partitions_are_each_in_one_task(
    spans: list[tuple[int, int]], tasks: int, record_size: float | None
) -> None:
    ranges = [Range("t", number, start, start + length) for number, (start, length) in enumerate(spans)]
    parts = slices(ranges, tasks, split=False, record_size=record_size)
    assert 1 <= len(parts) <= tasks
    assert sorted(piece for part in parts for piece in part) == [part for part in ranges if part.records]


@given(st.lists(st.tuples(st.integers(0, 1000), st.integers(0, 20_000)), max_size=12), st.integers(1, 16))
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


@pytest.mark.parametrize("split", [True, False])
def test_a_slice_names_the_records_that_are_left_out_of_it(split: bool) -> None:
    """Each slice has those of its own offsets."""
    ranges = [Range("a", 0, 10, 20, leader_epoch=3), Range("a", 1, 0, 4)]
    left_out = {"a/0": {(9, 3), (10, 3), (14, 4), (19, 5), (20, 5)}, "a/1": {(0, 1)}, "b/0": {(11, 0)}}
    parts = slices(ranges, 2, split=split, record_size=1e6, left_out=left_out)
    pieces = [piece for part in parts for piece in part]
    assert sum(piece.records for piece in pieces) == 14
    for piece in pieces:
        own = sorted(pair for pair in left_out[piece.key] if piece.start <= pair[0] < piece.until)
        assert list(piece.left_out) == own
        assert Range.of_fields(json.loads(json.dumps(piece.fields()))).fields() == piece.fields()
    assert sum(len(piece.left_out) for piece in pieces) == 4
