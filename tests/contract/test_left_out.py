"""Records that a pipeline leaves out, on a real Cassandra."""

from __future__ import annotations

import uuid
from datetime import UTC, datetime

import pytest

from fencepost.contract import Acceptance, Loss, Reason, TopicChange
from fencepost.fence.cassandra.left_out import LeftOutRecords
from fencepost.fence.cassandra.table import CassandraFenceTable
from fencepost.fence.left_out import LeftOut

pytestmark = pytest.mark.integration

KEYSPACE = "fencepost_contract"
NOW = datetime(2026, 1, 2, tzinfo=UTC)


def record(offset: int, *, topic: str = "orders", topic_id: str = "id", epoch: int = 4) -> LeftOut:
    return LeftOut(topic=topic, partition=3, offset=offset, topic_id=topic_id, leader_epoch=epoch, by="ann", at=NOW)


def test_what_is_left_out_is_of_one_pipeline_one_topic_id_and_one_leader_epoch(cassandra: CassandraFenceTable) -> None:
    mine, other = (f"contract/{uuid.uuid4()}/p" for _ in range(2))
    records = LeftOutRecords(cassandra.session, KEYSPACE, mine)
    assert records.of_topics({"orders": "id"}) == {}
    added = (
        record(7), record(7), record(7, epoch=5), record(9), record(1, topic="views", topic_id="v"),
        record(2, topic_id="old"),
    )  # fmt: skip
    for one in added:
        records.add(one)
    LeftOutRecords(cassandra.session, KEYSPACE, other).add(record(8))
    assert records.of_topics({"orders": "id"}) == {"orders/3": {(7, 4), (7, 5), (9, 4)}}
    assert records.of_topics({"orders": "id", "views": "v"})["views/3"] == {(1, 4)}
    assert {(one.offset, one.by, one.topic_id) for one in records.all() if one.topic_id == "old"} == {(2, "ann", "old")}


def test_a_loss_that_is_accepted_from_the_same_offset_on_changes_nothing(cassandra: CassandraFenceTable) -> None:
    """Found: both were rows of accepted_losses with one key, and each replaced a part of the other."""
    pipeline = f"contract/{uuid.uuid4()}/p"
    records = LeftOutRecords(cassandra.session, KEYSPACE, pipeline)
    topics = {"orders": TopicChange("id", "id")}
    loss = Loss(reason=Reason.OFFSET_OUT_OF_RANGE, ranges={"orders/3": (7, 30)}, topics=topics)
    cassandra.accept_loss(pipeline, loss, Acceptance(by="kim", choice="", at=NOW))
    records.add(record(7))
    cassandra.accept_loss(pipeline, loss, Acceptance(by="kim", choice="", at=NOW))
    assert records.of_topics({"orders": "id"}) == {"orders/3": {(7, 4)}}
    select = f"SELECT * FROM {KEYSPACE}.accepted_losses WHERE pipeline = %s"  # noqa: S608 - a constant
    (row,) = cassandra.session.execute(select, (pipeline,))
    assert (row.until_offset, row.reason, row.accepted_by) == (30, str(loss.reason), "kim")


def test_without_the_table_nothing_is_left_out(cassandra: CassandraFenceTable) -> None:
    assert LeftOutRecords(cassandra.session, "absent", "p").of_topics({"orders": "id"}) == {}
