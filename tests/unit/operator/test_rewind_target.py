"""Where a rewind goes back to when the topic has grown since then: keys keep their order."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime

import pytest

from fencepost.batch import Watermarks as Log
from fencepost.driver import plan
from fencepost.fence import FenceRow
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
