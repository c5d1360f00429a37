"""`fencepost fence verify` of a pipeline that lost records, which was accepted."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from functools import partial

import pytest

from fencepost.contract import Reason
from fencepost.fence import Fence, FenceRow, Starting
from fencepost.fence.memory import MemoryFenceTable
from fencepost_cli.accepted_loss import AcceptedLoss
from fencepost_cli.history import sink_rows
from unit.cli.world import ROW, World, history

KEY = "orders/0"
NOW = datetime(2026, 1, 2, tzinfo=UTC)


def loss(start: int, until: int, reason: Reason, choice: str | None = None, *, day: int = 0) -> AcceptedLoss:
    return AcceptedLoss(
        partition=KEY, start=start, until=until, reason=reason, choice=choice, at=NOW + timedelta(days=day)
    )


def lives(*each: tuple[str, int, int]) -> list[FenceRow]:
    """Runs of (topic id, first offset, last committed offset)."""
    table = MemoryFenceTable()
    fence = Fence(table, ROW)
    row = fence.create("cluster/uid")
    for number, (topic_id, first, last) in enumerate(each):
        taken = fence.take_over(row, owner="cluster/uid")
        start = Starting(offsets={KEY: first}, planned={KEY: last}, topic_ids={"orders": topic_id})
        row = fence.claim(epoch=taken.epoch, driver=f"pod-{number}", code="image", start=partial(_same, start))
        row = fence.commit(row, offsets={KEY: last}, planned={KEY: last}, records=last - first, duration_ms=1)
    return table.history


def _same(start: Starting, _: FenceRow) -> Starting:
    return start


def world_of(rows: list[FenceRow], offsets: range, *accepted: AcceptedLoss) -> World:
    world = World(row=rows[-1], records=history(rows), accepted_losses=list(accepted))
    world.positions_of["shop.orders"] = [("orders", 0, offset) for offset in offsets]
    return world


def test_records_that_retention_took_are_lost_and_not_missing() -> None:
    world = world_of(lives(("a", 0, 4), ("a", 7, 12)), range(12), loss(4, 7, Reason.OFFSET_OUT_OF_RANGE))
    for offset in (4, 5, 6):
        world.positions_of["shop.orders"].remove(("orders", 0, offset))
    printed = world.json("fence", "verify", "shop/orders", "--exact")
    (part,) = printed["sinks"][0]["partitions"]
    assert (printed["findings"], part["missing"], part["lost"], part["holes"]) == ([], 0, 3, [])
    world.positions_of["shop.orders"].remove(("orders", 0, 7))
    printed = world.json("fence", "verify", "shop/orders", "--exact", code=1)
    assert printed["findings"] == ["sink orders, orders/0: 1 committed offsets have no row"]
    assert printed["sinks"][0]["partitions"][0]["holes"] == [{"from": 7, "until": 8}]
    world.accepted_losses.clear()
    world.json("fence", "verify", "shop/orders", "--exact", code=1)


def test_a_record_that_is_left_out_is_lost_and_not_missing() -> None:
    """Its offset explains no jump of a claim, and rows beyond the planned offsets are still a finding."""
    skipped = loss(5, 6, Reason.POISON_RECORD)
    world = world_of(lives(("a", 0, 4), ("a", 4, 12)), range(12), skipped)
    world.positions_of["shop.orders"].remove(("orders", 0, 5))
    printed = world.json("fence", "verify", "shop/orders", "--exact")
    (part,) = printed["sinks"][0]["partitions"]
    assert (printed["findings"], part["missing"], part["lost"]) == ([], 0, 1)
    assert not skipped.explains(5, 6)
    world.accepted_losses.append(loss(13, 14, Reason.POISON_RECORD))
    world.positions_of["shop.orders"].append(("orders", 0, 13))
    printed = world.json("fence", "verify", "shop/orders", "--exact", code=1)
    assert printed["findings"] == ["sink orders, orders/0: 1 offsets have rows and were never planned"]


def test_rows_of_a_topic_that_was_recreated_are_of_an_earlier_log() -> None:
    recreated = loss(12, 14, Reason.TOPIC_RECREATED, "orders/0:4")
    world = world_of(lives(("a", 0, 12), ("b", 4, 6)), range(12), recreated)
    printed = world.json("fence", "verify", "shop/orders", "--exact")
    (part,) = printed["sinks"][0]["partitions"]
    assert (part["from"], part["until"], part["before"], part["earlier"], part["beyond"]) == (4, 6, 4, 6, 0)
    world.positions_of["shop.orders"].append(("orders", 0, 14))
    printed = world.json("fence", "verify", "shop/orders", "--exact", code=1)
    assert printed["findings"] == ["sink orders, orders/0: 1 offsets have rows and were never planned"]


def test_the_choice_of_an_offset_stands_where_the_history_has_expired() -> None:
    rows = lives(("a", 0, 3), ("b", 5, 8))
    world = world_of(rows, range(5, 8), loss(3, 3, Reason.TOPIC_RECREATED, "orders/0:5"))
    world.positions_of["shop.orders"].append(("orders", 0, 0))
    world.records = world.records[-1:]
    (part,) = world.json("fence", "verify", "shop/orders", "--exact")["sinks"][0]["partitions"]
    assert (part["from"], part["fromKnown"], part["missing"]) == (5, True, 0)


def test_ranges_of_the_log_before_excuse_nothing_in_the_one_after() -> None:
    accepted = (
        loss(4, 7, Reason.OFFSET_OUT_OF_RANGE), loss(12, 12, Reason.TOPIC_RECREATED, "earliest", day=1),
    )  # fmt: skip
    world = world_of(lives(("a", 0, 4), ("a", 7, 12), ("b", 0, 10)), range(10), *accepted)
    world.json("fence", "verify", "shop/orders", "--exact")
    world.positions_of["shop.orders"].remove(("orders", 0, 5))
    world.json("fence", "verify", "shop/orders", "--exact", code=1)


def test_rows_of_a_truncated_log_were_planned_once() -> None:
    world = world_of(lives(("a", 0, 12), ("a", 9, 10)), range(12), loss(9, 12, Reason.LOG_TRUNCATED))
    (part,) = world.json("fence", "verify", "shop/orders", "--exact")["sinks"][0]["partitions"]
    assert (part["until"], part["earlier"], part["beyond"], part["missing"]) == (10, 2, 0, 0)


def test_rows_of_a_topic_that_was_abandoned_are_of_an_earlier_log() -> None:
    rows = lives(("a", 0, 12))
    world = world_of(rows, range(12), loss(12, 12, Reason.TOPIC_DELETED, "abandon"))
    gone = rows[-1]
    world.row = type(gone)(
        **{**{name: getattr(gone, name) for name in gone.__dataclass_fields__}, "offsets": {}, "planned": {}}
    )
    printed = world.json("fence", "verify", "shop/orders", "--exact", code=1)  # the row itself was changed by hand here
    assert not [finding for finding in printed["findings"] if finding.startswith("sink")]


@pytest.mark.parametrize("words", [["--max-rows", "3"], []])
def test_a_table_that_is_too_large_or_too_wide_is_reported(words: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    """Injected: an author's table with an offset in each of many pieces."""
    monkeypatch.setattr(sink_rows, "MOST_CHUNKS", 4)
    world = world_of(lives(("a", 0, 12)), range(0, 100_000_000, 20_000_000))
    printed = world.json("fence", "verify", "shop/orders", *words)
    assert ("--max-rows" if words else "spread over more than 4 pieces") in printed["sinks"][0]["skipped"]
