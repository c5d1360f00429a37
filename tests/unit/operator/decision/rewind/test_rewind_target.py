"""Where a rewind goes back to when the topic has grown since then: keys keep their order."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from datetime import UTC, datetime
from uuid import uuid1

import pytest

from fencepost.batch import Watermarks as Log
from fencepost.driver.planning import plan
from fencepost.fence import KNOWN_GROWTHS, Fence, FenceRow
from fencepost.fence.memory import MemoryFenceTable
from fencepost.fence.snapshots import Snapshot
from fencepost_operator.api import ResolvedTarget, RewindSpec, RewindTarget
from fencepost_operator.decision.rewind.target import UNCHECKED, records_to_repeat, resolve
from fencepost_operator.observation import NO_RECORD, Known, NotAsked, RewindFacts, Watermarks

GREW_AT = {"t/0": 10_000, "t/1": 0}
ROW = FenceRow(
    pipeline="p", owner="o", epoch=5, offsets={"t/0": 10_500, "t/1": 300}, planned={"t/0": 10_500, "t/1": 300},
    topic_ids={"t": "id"}, growth_barrier=GREW_AT,
)  # fmt: skip
LOG = Watermarks(ends=ROW.offsets, starts={"t/0": 0, "t/1": 0}, topic_ids={"t": "id"})
BY_TIME = RewindSpec(pipeline="p", to=RewindTarget(timestamp=datetime(2026, 1, 1, tzinfo=UTC)))


def by_time(positions: dict[str, int], log: Watermarks = LOG) -> ResolvedTarget:
    found = resolve(BY_TIME, ROW, Known(log), RewindFacts(positions=Known(positions)))
    assert isinstance(found, ResolvedTarget)
    return found


def by_offsets(offsets: dict[str, int], log: Watermarks = LOG) -> object:
    return resolve(RewindSpec(pipeline="p", to=RewindTarget(offsets=offsets)), ROW, Known(log), RewindFacts())


def test_a_time_before_the_growth_holds_the_new_partition_until_the_old_one_has_passed_it() -> None:
    """Found: the first batch after the rewind read both partitions from 0."""
    target = by_time({"t/0": 4_000, "t/1": 0})
    assert (target.offsets, target.growth_barrier) == ({"t/0": 4_000}, GREW_AT)
    assert records_to_repeat(ROW, target) == 6_500 + 300
    log = Log(begins={"t/0": 0, "t/1": 0}, ends=ROW.offsets, topic_ids={"t": "id"})
    position = plan.Position(offsets=target.offsets, barrier=target.growth_barrier)
    while position.offsets["t/0"] < 10_000:
        found = plan.after(position, {"t": "id"}, log, ["t"], 1_000)
        assert [part.key for part in found.batch.ranges] == ["t/0"]
        position = replace(found.position, offsets={**found.position.offsets, **found.batch.until})
    found = plan.after(position, {"t": "id"}, log, ["t"], 1_000)
    assert {part.key: part.start for part in found.batch.ranges} == {"t/0": 10_000, "t/1": 0}


@pytest.mark.parametrize("at", [10_000, 10_200])
def test_a_time_after_the_growth_holds_nothing(at: int) -> None:
    target = by_time({"t/0": at, "t/1": 100})
    assert (target.offsets, target.growth_barrier) == ({"t/0": at, "t/1": 100}, GREW_AT)


@pytest.mark.parametrize("position", [NO_RECORD, 301])
def test_a_partition_without_committed_records_since_the_time_stays(position: int) -> None:
    assert by_time({"t/0": 10_200, "t/1": position}).offsets == {"t/0": 10_200, "t/1": 300}


@pytest.mark.parametrize(
    ("facts", "missing"),
    [(RewindFacts(), NotAsked()), (RewindFacts(positions=Known({"t/0": 4_000})), UNCHECKED)],
    ids=["not asked", "no answer for a partition"],
)
def test_a_time_waits_for_the_positions_of_all_partitions(facts: RewindFacts, missing: object) -> None:
    assert resolve(BY_TIME, ROW, Known(LOG), facts) == missing


def test_a_target_before_the_growth_waits_for_the_beginning_of_the_new_partition() -> None:
    """Found: offsets were refused for good, with the advice to begin at 0, while a broker did not answer."""
    log = replace(LOG, starts={"t/0": 0})
    assert by_offsets({"t/0": 4_000}, log) == UNCHECKED
    positions = RewindFacts(positions=Known({"t/0": 4_000, "t/1": 0}))
    assert resolve(BY_TIME, ROW, Known(log), positions) == UNCHECKED


def test_a_new_partition_of_which_nothing_is_committed_is_held_again() -> None:
    row = replace(ROW, offsets={**ROW.offsets, "t/1": 0})
    to = RewindSpec(pipeline="p", to=RewindTarget(offsets={"t/0": 4_000}))
    target = resolve(to, row, Known(LOG), RewindFacts())
    assert isinstance(target, ResolvedTarget)
    assert (target.offsets, target.growth_barrier) == ({"t/0": 4_000}, GREW_AT)


def test_a_topic_that_the_spec_has_left_stays_where_it_is() -> None:
    at = {"t/0": 10_500, "old/0": 70}
    row = replace(ROW, offsets=at, planned=at, topic_ids={"t": "id", "old": "id-2"}, growth_barrier={})
    kept = Snapshot(id=uuid1(), trigger="Manual", offsets={"t/0": 4_000, "old/0": 7}, topic_ids=row.topic_ids)
    to = RewindSpec(pipeline="p", to=RewindTarget(snapshot="early"))
    target = resolve(to, row, Known(LOG), RewindFacts(snapshot=Known(kept)))
    assert isinstance(target, ResolvedTarget)
    assert target.offsets == {"t/0": 4_000, "old/0": 70}


@pytest.mark.parametrize("empty_state", [True, False])
def test_a_snapshot_from_before_the_first_claim_is_refused(empty_state: bool) -> None:
    """Found: with emptyState all topics kept their offsets, as those that a snapshot lacks."""
    kept = Snapshot(id=uuid1(), trigger="Rewind")
    to = RewindSpec(pipeline="p", to=RewindTarget(snapshot="early"), empty_state=empty_state)
    row = replace(ROW, checkpoint=b"state")
    (why,) = resolve(to, row, Known(LOG), RewindFacts(snapshot=Known(kept)))  # type: ignore[misc]
    assert "has no offsets: name offsets or a timestamp in spec.to" in str(why)


def test_a_new_partition_of_which_retention_took_the_beginning_starts_where_its_log_does() -> None:
    target = by_time({"t/0": 4_000, "t/1": 50}, replace(LOG, starts={"t/0": 0, "t/1": 50}))
    assert (target.offsets, target.growth_barrier["t/1"]) == ({"t/0": 4_000}, 50)
    assert records_to_repeat(ROW, target) == 6_500 + 250


@pytest.mark.parametrize("offsets", [{"t/0": 4_000}, {"t/0": 4_000, "t/1": 20}])
def test_offsets_before_the_growth_are_refused_without_the_beginning_of_the_new_partition(
    offsets: dict[str, int],
) -> None:
    refused = by_offsets(offsets)
    assert isinstance(refused, tuple)
    assert "add t/1: 0 to spec.to.offsets" in refused[0]


def test_offsets_before_the_growth_hold_the_new_partition() -> None:
    target = by_offsets({"t/0": 4_000, "t/1": 0})
    assert isinstance(target, ResolvedTarget)
    assert (target.offsets, target.growth_barrier) == ({"t/0": 4_000}, GREW_AT)


def test_offsets_of_a_new_partition_alone_hold_nothing() -> None:
    target = by_offsets({"t/1": 20})
    assert isinstance(target, ResolvedTarget)
    assert target.offsets == {"t/0": 10_500, "t/1": 20}


TWICE = replace(
    ROW,
    offsets={"t/0": 20_500, "t/1": 5_300, "t/2": 40},
    planned={"t/0": 20_500, "t/1": 5_300, "t/2": 40},
    growth_barrier={"t/0": 20_000, "t/1": 5_000, "t/2": 0},
    growths=(GREW_AT, {"t/0": 20_000, "t/1": 5_000, "t/2": 0}),
)
LONGER = Watermarks(ends=TWICE.offsets, starts=dict.fromkeys(TWICE.offsets, 0), topic_ids={"t": "id"})


def twice(to: RewindTarget, facts: RewindFacts, log: Watermarks = LONGER) -> object:
    return resolve(RewindSpec(pipeline="p", to=to), TWICE, Known(log), facts)


def before_both() -> Iterator[tuple[RewindTarget, RewindFacts]]:
    beginning = {"t/0": 4_000, "t/1": 0, "t/2": 0}
    yield RewindTarget(timestamp=datetime(2026, 1, 1, tzinfo=UTC)), RewindFacts(positions=Known(beginning))
    yield RewindTarget(offsets=beginning), RewindFacts()
    kept = Snapshot(id=uuid1(), trigger="Manual", offsets={"t/0": 4_000}, topic_ids={"t": "id"})
    yield RewindTarget(snapshot="early"), RewindFacts(snapshot=Known(kept))


@pytest.mark.parametrize(("to", "facts"), list(before_both()), ids=["time", "offsets", "snapshot"])
def test_before_two_growths_each_partition_waits_for_all_that_are_older(to: RewindTarget, facts: RewindFacts) -> None:
    """Found: the partitions of the first growth were read beside those before it, or those of both at once."""
    target = twice(to, facts)
    assert isinstance(target, ResolvedTarget)
    assert (target.offsets, target.growth_barrier) == ({"t/0": 4_000}, GREW_AT)
    table = MemoryFenceTable(rows={"p": replace(TWICE, driver=None)})
    row = Fence(table, "p").rewind(
        table.rows["p"], offsets=target.offsets, leader_epochs={}, growth_barrier=target.growth_barrier
    )
    log = Log(begins=dict(LONGER.starts), ends=LONGER.ends, topic_ids={"t": "id"})
    position = plan.Position(offsets=row.offsets, barrier=row.growth_barrier, growths=row.growths)
    read: dict[str, int] = dict(row.offsets)
    while (found := plan.after(position, {"t": "id"}, log, ["t"], 1_000)).batch.ranges:
        for part in found.batch.ranges:
            assert part.key != "t/1" or read["t/0"] >= 10_000
            assert part.key != "t/2" or (read["t/0"] >= 20_000 and read["t/1"] >= 5_000)
        read |= found.batch.until
        position = replace(found.position, offsets={**found.position.offsets, **found.batch.until})
    assert read == LONGER.ends
    assert row.growths_after(position.barrier) == TWICE.growths


def test_between_two_growths_only_the_last_one_is_held() -> None:
    positions = {"t/0": 15_000, "t/1": 100, "t/2": 0}
    target = twice(BY_TIME.to, RewindFacts(positions=Known(positions)))
    assert isinstance(target, ResolvedTarget)
    assert (target.offsets, target.growth_barrier) == ({"t/0": 15_000, "t/1": 100}, TWICE.growth_barrier)


HELD = replace(TWICE, offsets={"t/0": 20_500}, planned={"t/0": 20_500}, growth_barrier=GREW_AT)
"""Rewound before both growths and stopped where no batch has read the partitions that are held."""


def before_the_last() -> Iterator[tuple[RewindTarget, RewindFacts]]:
    positions = {"t/0": 15_000, "t/1": 100, "t/2": 0}
    yield RewindTarget(timestamp=datetime(2026, 1, 1, tzinfo=UTC)), RewindFacts(positions=Known(positions))
    yield RewindTarget(offsets={"t/0": 15_000}), RewindFacts()
    kept = Snapshot(
        id=uuid1(), trigger="Manual", offsets={"t/0": 15_000}, topic_ids={"t": "id"}, growth_barrier=GREW_AT
    )
    yield RewindTarget(snapshot="held"), RewindFacts(snapshot=Known(kept))


@pytest.mark.parametrize(("to", "facts"), list(before_the_last()), ids=["time", "offsets", "snapshot"])
def test_a_partition_that_is_still_held_is_read_from_its_beginning(to: RewindTarget, facts: RewindFacts) -> None:
    """Found by the simulation, seed 569835: it was read from where it had been when the topic grew again."""
    target = resolve(RewindSpec(pipeline="p", to=to), HELD, Known(LONGER), facts)
    assert isinstance(target, ResolvedTarget)
    assert (target.offsets, target.growth_barrier) == ({"t/0": 15_000}, GREW_AT)


def test_a_topic_that_a_snapshot_does_not_have_keeps_its_barrier() -> None:
    other = {"u/0": 20_000, "u/1": 5_000, "u/2": 0}
    at = {"t/0": 10_500, "t/1": 300, "u/0": 20_500, "u/1": 5_300, "u/2": 40}
    growths = (GREW_AT, {"u/0": 10_000, "u/1": 0}, other)
    row = replace(
        ROW,
        offsets=at,
        planned=at,
        topic_ids={"t": "id", "u": "other"},
        growth_barrier=GREW_AT | other,
        growths=growths,
    )
    kept = Snapshot(id=uuid1(), trigger="Manual", offsets={"t/0": 4_000}, topic_ids={"t": "id"})
    log = Watermarks(ends=at, starts=dict.fromkeys(at, 0), topic_ids={"t": "id", "u": "other"})
    to = RewindSpec(pipeline="p", to=RewindTarget(snapshot="early"))
    target = resolve(to, row, Known(log), RewindFacts(snapshot=Known(kept)))
    assert isinstance(target, ResolvedTarget)
    assert target.growth_barrier == GREW_AT | other


def test_before_two_growths_a_partition_that_lost_its_beginning_is_refused() -> None:
    """It is discovered again, and starts at 0."""
    log = replace(LONGER, starts={"t/0": 0, "t/1": 0, "t/2": 30})
    positions = {"t/0": 4_000, "t/1": 0, "t/2": 30}
    found = twice(BY_TIME.to, RewindFacts(positions=Known(positions)), log)
    assert found == ("t/2: the log begins at 30: the records from 0 on were deleted",)


GROWTHS = (
    {"t/0": 10_000, "t/1": 0},
    {"t/0": 20_000, "t/1": 5_000, "t/2": 0},
    {"t/0": 30_000, "t/1": 9_000, "t/2": 4_000, "t/3": 0},
    {"t/0": 40_000, "t/1": 12_000, "t/2": 8_000, "t/3": 3_000, "t/4": 0},
)
ENDS = {"t/0": 40_500, "t/1": 12_100, "t/2": 8_100, "t/3": 3_100, "t/4": 50}
OFTEN = replace(ROW, offsets=ENDS, planned=ENDS, growth_barrier=GROWTHS[-1], growths=GROWTHS)
OF_ALL = Watermarks(ends=ENDS, starts=dict.fromkeys(ENDS, 0), topic_ids={"t": "id"})


def before(growth: int) -> dict[str, int]:
    """Return offsets between two growths: each partition that was there is 10 before its end of then."""
    return {key: max(0, GROWTHS[growth].get(key, 0) - 10) for key in ENDS}


Named = Callable[[dict[str, int]], tuple[RewindTarget, RewindFacts]]


def of_time(offsets: dict[str, int]) -> tuple[RewindTarget, RewindFacts]:
    return BY_TIME.to, RewindFacts(positions=Known(offsets))


def of_offsets(offsets: dict[str, int]) -> tuple[RewindTarget, RewindFacts]:
    return RewindTarget(offsets=offsets), RewindFacts()


def of_snapshot(offsets: dict[str, int]) -> tuple[RewindTarget, RewindFacts]:
    there = {key: offset for key, offset in offsets.items() if offset}
    passed = next((growth for growth in GROWTHS if growth.keys() == there.keys()), {})
    kept = Snapshot(id=uuid1(), trigger="Manual", offsets=there, topic_ids={"t": "id"}, growth_barrier=passed)
    return RewindTarget(snapshot="kept"), RewindFacts(snapshot=Known(kept))


@pytest.mark.parametrize("named", [of_time, of_offsets, of_snapshot])
@pytest.mark.parametrize("growth", range(len(GROWTHS)))
def test_the_partitions_of_each_growth_wait_for_all_that_are_older(named: Named, growth: int) -> None:
    """Found: after the first of three growths, the partitions of the others were discovered as one growth."""
    to, facts = named(before(growth))
    target = resolve(RewindSpec(pipeline="p", to=to), OFTEN, Known(OF_ALL), facts)
    assert isinstance(target, ResolvedTarget), target
    table = MemoryFenceTable(rows={"p": replace(OFTEN, driver=None)})
    row = Fence(table, "p").rewind(
        table.rows["p"], offsets=target.offsets, leader_epochs={}, growth_barrier=target.growth_barrier
    )
    log = Log(begins=dict(OF_ALL.starts), ends=ENDS, topic_ids={"t": "id"})
    position = plan.Position(offsets=row.offsets, barrier=row.growth_barrier, growths=row.growths)
    read = dict(row.offsets)
    while (found := plan.after(position, {"t": "id"}, log, ["t"], 1_000)).batch.ranges:
        for part in found.batch.ranges:
            older = next((ends for ends in GROWTHS[growth:] if ends.get(part.key) == 0), {})
            assert all(read[key] >= end for key, end in older.items() if end)
        read |= found.batch.until
        position = replace(found.position, offsets={**found.position.offsets, **found.batch.until})
    assert read == ENDS
    assert row.growths_after(position.barrier) == GROWTHS
    assert position.barrier == GROWTHS[-1]


def test_a_target_before_more_growths_than_the_row_knows_is_refused() -> None:
    ends = {f"t/{number}": 1_000 for number in range(KNOWN_GROWTHS + 2)}
    row = replace(ROW, offsets=ends, planned=ends, growth_barrier={}, growths=())
    for size in range(2, len(ends) + 1):
        barrier = {f"t/{number}": 0 if number == size - 1 else size * 10 for number in range(size)}
        row = replace(row, growths=row.growths_after(barrier), growth_barrier=barrier)
    assert len(row.growths) == KNOWN_GROWTHS
    log = Watermarks(ends=ends, starts=dict.fromkeys(ends, 0), topic_ids={"t": "id"})

    def by_time(at: int) -> object:
        positions = {key: max(0, min(at, row.growths[-1][key])) for key in ends}
        return resolve(BY_TIME, row, Known(log), RewindFacts(positions=Known(positions)))

    refused = by_time(25)
    assert isinstance(refused, tuple)
    assert refused[0].startswith("topic t has grown 10 times or more since the target")
    assert refused[0].endswith("choose a later target in spec.to")
    assert isinstance(by_time(35), ResolvedTarget)
