"""Where a rewind goes back to when the topic has grown since then: keys keep their order."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime
from uuid import uuid1

import pytest

from fencepost.batch import Watermarks as Log
from fencepost.driver import plan
from fencepost.fence import Fence, FenceRow
from fencepost.fence.memory import MemoryFenceTable
from fencepost.fence.snapshots import Snapshot
from fencepost_operator.api import ResolvedTarget, RewindSpec, RewindTarget
from fencepost_operator.decision.rewind.target import records_to_repeat, resolve
from fencepost_operator.observation import Known, RewindFacts, Watermarks

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


def by_offsets(offsets: dict[str, int]) -> object:
    return resolve(RewindSpec(pipeline="p", to=RewindTarget(offsets=offsets)), ROW, Known(LOG), RewindFacts())


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


def test_a_time_after_the_growth_holds_nothing() -> None:
    target = by_time({"t/0": 10_200, "t/1": 100})
    assert (target.offsets, target.growth_barrier) == ({"t/0": 10_200, "t/1": 100}, GREW_AT)


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
    earlier_growth=GREW_AT,
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
    assert row.earlier_growth == {}
    log = Log(begins=dict(LONGER.starts), ends=LONGER.ends, topic_ids={"t": "id"})
    position = plan.Position(offsets=row.offsets, barrier=row.growth_barrier)
    read: dict[str, int] = dict(row.offsets)
    while (found := plan.after(position, {"t": "id"}, log, ["t"], 1_000)).batch.ranges:
        for part in found.batch.ranges:
            assert part.key != "t/1" or read["t/0"] >= 10_000
            assert part.key != "t/2" or (read["t/0"] >= 20_000 and read["t/1"] >= 5_000)
        read |= found.batch.until
        position = replace(found.position, offsets={**found.position.offsets, **found.batch.until})
    assert read == LONGER.ends
    assert row.earlier_growth_after(position.barrier) == GREW_AT


def test_between_two_growths_only_the_last_one_is_held() -> None:
    positions = {"t/0": 15_000, "t/1": 100, "t/2": 0}
    target = twice(BY_TIME.to, RewindFacts(positions=Known(positions)))
    assert isinstance(target, ResolvedTarget)
    assert (target.offsets, target.growth_barrier) == ({"t/0": 15_000, "t/1": 100}, TWICE.growth_barrier)


def test_before_two_growths_a_partition_that_lost_its_beginning_is_refused() -> None:
    """It is discovered again, and starts at 0."""
    log = replace(LONGER, starts={"t/0": 0, "t/1": 0, "t/2": 30})
    positions = {"t/0": 4_000, "t/1": 0, "t/2": 30}
    found = twice(BY_TIME.to, RewindFacts(positions=Known(positions)), log)
    assert found == ("t/2: the log begins at 30: the records from 0 on were deleted",)
