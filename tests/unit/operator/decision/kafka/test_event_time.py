"""Event time: which partition is named for a watermark that is stuck, and how long late rows are reported."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta

import pytest

from fencepost.fence import FenceRow
from fencepost_operator.api import EventTimeStatus, Status, condition_of
from fencepost_operator.api.codec import encode
from fencepost_operator.decision.decision import Decision
from fencepost_operator.decision.kafka.event_time import LATE_FOR, STUCK_AFTER
from present import present
from unit.operator.scenes import NOW, ROW, SILENT, WELL

MINUTE = timedelta(minutes=1)
FUTURE = datetime.max.replace(tzinfo=NOW.tzinfo)


def ms(moment: datetime) -> int:
    return round(moment.timestamp() * 1000)


@dataclass
class Query:
    """A stateful pipeline of three partitions, which is looked at every minute."""

    read: tuple[int, ...] = (0, 1, 2)
    """The partitions with new records."""
    times: dict[int, datetime] = field(default_factory=lambda: dict.fromkeys(range(3), NOW))
    watermark: datetime = NOW - 2 * MINUTE
    late_rows: int = 0
    now: datetime = NOW
    status: Status = WELL.pipeline.status
    row: FenceRow = field(default_factory=lambda: replace(ROW, offsets={f"orders/{n}": 50 for n in range(3)}))

    def look(self) -> Decision:
        """Commit a batch, and look."""
        offsets = {**self.row.offsets}
        for number in self.read:
            offsets[f"orders/{number}"] += 1
        self.row = replace(
            self.row,
            version=self.row.version + 1,
            offsets=offsets,
            watermark=ms(self.watermark),
            late_rows=self.late_rows,
            record_times={f"orders/{number}": ms(time) for number, time in self.times.items()},
        )
        return self.decide(self.row)

    def decide(self, row: object) -> Decision:
        self.now += MINUTE
        scene = WELL.with_pipeline(status=self.status).seen(fence=row)
        observation = replace(scene.observation, now=self.now)
        decision = replace(scene, observation=observation).decide()
        self.status = decision.status
        return decision

    def commit(
        self, *, ahead: Mapping[int, timedelta] | None = None, moves: timedelta = MINUTE, looks: int = 20
    ) -> str:
        """Commit each minute records of now, or `ahead` of it; return the message of WatermarkStuck, '' without one."""
        for _ in range(looks):
            self.times.update({number: self.now + (ahead or {}).get(number, timedelta()) for number in self.read})
            self.watermark += moves
            self.look()
        return self.stuck()

    def stuck(self) -> str:
        found = condition_of(self.status.conditions, "WatermarkStuck")
        return "" if found is None else found.message


def test_a_watermark_that_moves_is_not_stuck() -> None:
    query = Query()
    assert query.commit() == ""
    assert present(query.status.event_time).held_since is None
    query.read = (0,)
    assert query.commit(looks=120) == "", "a quiet partition holds nothing while others move the watermark"


def test_a_quiet_partition_is_named_when_the_watermark_is_held() -> None:
    """In a join the slower side holds it."""
    query = Query(read=(0, 1))
    message = query.commit(moves=timedelta(), looks=30)
    assert "orders/2 up to 2026-01-01 12:00:00 UTC" in message
    assert "orders/0" not in message
    assert "the watermark is 2026-01-01 11:58:00 UTC" in message
    ready = present(condition_of(query.status.conditions, "Ready"))
    assert ready.status == "True"


def test_a_partition_without_any_record_is_named_first() -> None:
    query = Query(read=(1,))
    del query.times[2]
    message = query.commit(moves=timedelta(), looks=30)
    assert "are orders/2, orders/0 up to" in message


def test_a_partition_that_is_ahead_is_named() -> None:
    """Its records move the watermark beyond those of the others."""
    query = Query(watermark=NOW + 58 * MINUTE)
    message = query.commit(ahead={1: 60 * MINUTE})
    assert "ahead is orders/1 up to 2026-01-01 13:" in message
    assert "orders/0" not in message


def test_one_record_of_a_far_future_is_named() -> None:
    query = Query(times={0: NOW, 1: FUTURE, 2: NOW}, watermark=FUTURE - MINUTE, read=(0, 2))
    assert "ahead is orders/1 up to 9999-12-31" in query.commit(moves=timedelta())


def test_event_times_that_no_timestamp_shows_name_no_partition() -> None:
    query = Query(watermark=NOW + timedelta(days=30))
    assert query.commit() == "", "the event time of a departure is in the future"
    assert "no record has a timestamp as new" in query.commit(moves=timedelta())
    query = Query(watermark=NOW - timedelta(days=30))
    assert "their event times do not rise" in query.commit(moves=timedelta())


def test_only_commits_count() -> None:
    """An idle pipeline has a watermark that rests."""
    query = Query()
    query.commit(moves=timedelta(), looks=5)
    query.read = ()
    assert query.commit(moves=timedelta(), looks=60) == ""


def test_a_watermark_that_moves_again_ends_the_condition() -> None:
    query = Query(read=(0, 1))
    assert query.commit(moves=timedelta(), looks=30)
    query.decide(SILENT)
    assert "orders/2" in query.stuck(), "what cannot be seen changes nothing"
    query.read = ()
    message = query.stuck()
    assert query.commit(moves=timedelta(), looks=3) == message
    query.read = (0, 1)
    assert query.commit(looks=1) == ""


def test_it_is_reported_after_a_while() -> None:
    query = Query()
    looks = STUCK_AFTER // MINUTE + 2  # the first has nothing before it, and from the second on it lasts
    assert query.commit(moves=timedelta(), looks=looks - 1) == ""
    assert query.commit(moves=timedelta(), looks=1)


def test_late_rows_are_reported_until_none_was_dropped_for_a_while() -> None:
    query = Query(late_rows=7)
    query.look()
    assert condition_of(query.status.conditions, "LateRowsDropped") is None, "when they were dropped is not known"
    query.late_rows = 12
    events = [event.reason for event in query.look().events]
    found = present(condition_of(query.status.conditions, "LateRowsDropped"))
    assert "12 rows were dropped" in found.message
    assert "withWatermark" in found.message
    assert "LateRowsDropped" in events
    assert present(condition_of(query.status.conditions, "Ready")).status == "True"
    query.now += LATE_FOR - 2 * MINUTE
    assert "LateRowsDropped" not in [event.reason for event in query.look().events]
    assert condition_of(query.status.conditions, "LateRowsDropped") is not None
    query.look()
    assert condition_of(query.status.conditions, "LateRowsDropped") is None


def test_a_stateless_pipeline_has_no_event_time() -> None:
    assert WELL.decide().status.event_time is None


@pytest.mark.parametrize("number", [0, 2**63 - 1])
def test_any_number_of_the_fence_row_can_be_reported(number: int) -> None:
    row = replace(ROW, watermark=number, late_rows=number, record_times={"orders/0": number})
    figures = EventTimeStatus(watermark=NOW, held_since=NOW, held_seconds=3600, late_at=NOW)
    decision = WELL.said(event_time=figures).seen(fence=row).decide()
    assert present(decision.status.event_time).late_rows == number
    encode(decision.status)
