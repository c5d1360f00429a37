"""Dead letters and left-out records in a real PostgreSQL."""

from __future__ import annotations

import uuid
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime

import pytest

from fakes.driver_configs import USUAL
from fencepost.driver.fence_store import PostgresqlStore
from fencepost.fence import Fence, Fenced, FenceRow
from fencepost.fence.left_out import LeftOut
from fencepost.fence.letters import LONGEST_TEXT, DeadLetter, letter
from fencepost.fence.postgresql.dead_letters import PAGE, DeadLetters
from fencepost.fence.postgresql.left_out import LeftOutRecords
from fencepost.fence.postgresql.table import PostgresqlFenceTable
from present import present

pytestmark = pytest.mark.integration

AT = datetime(2026, 1, 3, tzinfo=UTC)
Holding = Callable[[], tuple[DeadLetters, Fence, FenceRow]]


@pytest.fixture
def holding(postgresql: PostgresqlFenceTable) -> Holding:
    """Return what makes a pipeline in epoch 1, and its letters."""

    def hold() -> tuple[DeadLetters, Fence, FenceRow]:
        pipeline = f"contract/{uuid.uuid4()}/p"
        fence = Fence(postgresql, pipeline)
        row = fence.take_over(fence.create("cluster/cr"), owner="cluster/cr")
        return DeadLetters(postgresql.session, postgresql.schema, pipeline), fence, row

    return hold


def made(offset: int, *, value: bytes | None = b"{", epoch: int = 1, topic_id: str = "id") -> DeadLetter:
    found = letter(
        topic="orders", partition=3, topic_id=topic_id, offset=offset, epoch=epoch, code="job:1",
        reason="TransformFailed", error="it is not JSON", traceback="Traceback …", timestamp=AT, key=b"k", value=value,
        headers=(("trace", b"\x00\xff"), ("trace", None)),
    )  # fmt: skip
    return replace(found, at=AT)


def offsets_of(letters: DeadLetters) -> list[tuple[int, str]]:
    return [(one.offset, one.topic_id) for one in letters.of_partition("orders", 3)]


def test_a_letter_is_listed_in_short_and_read_whole(holding: Holding) -> None:
    letters, _, _ = holding()
    assert [*letters.of_partition("orders", 3)] == []
    for offset in (8, 7):
        assert letters.write(made(offset), retention=3600.0)
    assert letters.read(made(8)) == made(8)
    (seven, eight) = letters.of_partition("orders", 3)
    assert (seven.offset, eight.offset, seven.value_size) == (7, 8, 1)
    assert {one.key or one.value or one.headers or one.traceback for one in (seven, eight)} == {None}
    assert [one.offset for one in letters.of_partition("orders", 3, start=8)] == [8]
    assert [one.offset for one in letters.of_partition("orders", 3, until=8)] == [7]
    assert [one.offset for one in letters.of_partition("orders", 3, limit=1)] == [7]
    assert letters.write(replace(made(8), error="again"), retention=3600.0)
    assert present(letters.read(made(8))).error == "again"
    large = replace(made(9, value=bytes(range(251)) * 20_000), traceback="t" * LONGEST_TEXT)
    assert letters.write(large, retention=3600.0)
    assert letters.read(large) == large
    assert letters.write(made(10, value=None), retention=3600.0)
    assert present(letters.read(made(10))).value is None


def test_an_error_that_quotes_a_nul_is_kept(holding: Holding) -> None:
    letters, _, _ = holding()
    assert letters.write(replace(made(7), error="a\0b"), retention=3600.0)
    assert present(letters.read(made(7))).error == "a␀b"


def test_a_replaced_driver_writes_no_letter(holding: Holding) -> None:
    letters, fence, row = holding()
    for offset in (7, 8, 9):
        letters.write(made(offset), retention=3600.0)
    letters.write(made(9, topic_id="deleted"), retention=3600.0)
    letters.mark_retried(made(9), by="ann", at=AT, to="orders/3@20")
    fence.take_over(row, owner="cluster/cr")
    assert letters.remove_from({"orders/3": 8, "orders/4": 0}, {"orders": "id"}, epoch=2)
    assert offsets_of(letters) == [(7, "id"), (9, "deleted")]
    # Injected: the driver of epoch 1 writes late.
    assert not letters.write(made(8), retention=3600.0)
    assert offsets_of(letters) == [(7, "id"), (9, "deleted")]
    assert letters.write(made(9, epoch=2), retention=3600.0)
    assert letters.read(made(9)) == made(9, epoch=2)
    # Injected: the driver of epoch 1 begins late, and would read from offset 7 on.
    assert not letters.remove_from({"orders/3": 7}, {"orders": "id"}, epoch=1)
    assert offsets_of(letters) == [(7, "id"), (9, "deleted"), (9, "id")]


def test_a_run_that_was_replaced_is_fenced_at_its_letters(postgresql: PostgresqlFenceTable, holding: Holding) -> None:
    letters, fence, row = holding()
    config = replace(USUAL, pipeline=row.pipeline, cassandra=None, fence_keyspace=postgresql.schema)
    store = PostgresqlStore(postgresql, config)
    own = replace(row, offsets={"orders/3": 7}, topic_ids={"orders": "id"})
    store.write_letter(made(8), own, retention=3600.0)
    fence.take_over(row, owner="cluster/cr")
    with pytest.raises(Fenced) as caught:
        store.write_letter(made(9), own, retention=3600.0)
    assert present(caught.value.seen).epoch == 2
    with pytest.raises(Fenced):
        store.remove_letters(own)
    assert offsets_of(letters) == [(8, "id")]


def test_letters_come_in_order_over_many_pages_and_topic_ids(holding: Holding) -> None:
    letters, _, _ = holding()
    wanted = sorted((offset, topic_id) for offset in range(PAGE) for topic_id in ("", "B", "a"))
    for offset, topic_id in wanted:
        letters.write(made(offset, topic_id=topic_id), retention=3600.0)
    assert offsets_of(letters) == wanted


def test_a_retry_is_marked_and_what_has_expired_goes(postgresql: PostgresqlFenceTable, holding: Holding) -> None:
    letters, fence, row = holding()
    letters.write(made(8), retention=3600.0)
    letters.mark_retried(made(8), by="ann", at=AT, to="orders/3@21")
    assert letters.read(made(8)) == replace(made(8), retried_at=AT, retried_by="ann", retried_to="orders/3@21")
    letters.write(made(9), retention=-1.0)
    letters.mark_retried(made(9), by="ann", at=AT, to="orders/3@20")
    assert letters.read(made(9)) is None
    assert offsets_of(letters) == [(8, "id")]
    table = PostgresqlFenceTable(postgresql.session, postgresql.schema)
    table.report_progress(row.pipeline, epoch=1, version=1, done=0)
    count = f"SELECT count(*) FROM {postgresql.schema}.dead_letters WHERE pipeline = %s"  # noqa: S608 - a constant
    assert postgresql.session.run("asking", count, (row.pipeline,)) == [(1,)]
    fence.release(row)
    assert postgresql.session.run("asking", count, (row.pipeline,)) == [(0,)]


def test_what_is_left_out_is_of_one_pipeline_one_topic_id_and_one_leader_epoch(
    postgresql: PostgresqlFenceTable,
) -> None:
    def record(offset: int, *, topic: str = "orders", topic_id: str = "id", epoch: int = 4) -> LeftOut:
        return LeftOut(topic=topic, partition=3, offset=offset, topic_id=topic_id, leader_epoch=epoch, by="ann", at=AT)

    mine, other = (
        LeftOutRecords(postgresql.session, postgresql.schema, f"contract/{uuid.uuid4()}/p") for _ in range(2)
    )
    assert mine.of_topics({"orders": "id"}) == {}
    added = (
        record(7), record(7), record(7, epoch=5), record(9), record(1, topic="views", topic_id="v"),
        record(2, topic_id="old"),
    )  # fmt: skip
    for one in added:
        mine.add(one)
    other.add(record(8))
    assert mine.of_topics({"orders": "id"}) == {"orders/3": {(7, 4), (7, 5), (9, 4)}}
    assert mine.of_topics({"orders": "id", "views": "v"})["views/3"] == {(1, 4)}
    assert [one for one in mine.all() if one.topic_id == "old"] == [record(2, topic_id="old")]
