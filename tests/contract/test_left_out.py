"""Records that a pipeline leaves out, on a real Cassandra."""

from __future__ import annotations

import uuid
from datetime import UTC, datetime

import pytest

from fencepost.contract import Acceptance, Loss, Reason, TopicChange
from fencepost.fence.cassandra.left_out import LeftOut, LeftOutRecords
from fencepost.fence.cassandra.table import CassandraFenceTable

pytestmark = pytest.mark.integration

KEYSPACE = "fencepost_contract"
NOW = datetime(2026, 1, 2, tzinfo=UTC)


def record(offset: int, *, topic: str = "orders", topic_id: str = "id") -> LeftOut:
    return LeftOut(topic=topic, partition=3, offset=offset, topic_id=topic_id, by="ann", at=NOW)


def test_what_is_left_out_is_of_one_pipeline_and_one_topic_id(cassandra: CassandraFenceTable) -> None:
    """Accepted losses are in the same table."""
    mine, other = (f"contract/{uuid.uuid4()}/p" for _ in range(2))
    records = LeftOutRecords(cassandra.session, KEYSPACE, mine)
    assert records.offsets({"orders": "id"}) == {}
    for one in (record(7), record(7), record(9), record(1, topic="views", topic_id="v"), record(2, topic_id="old")):
        records.add(one)
    LeftOutRecords(cassandra.session, KEYSPACE, other).add(record(8))
    topics = {"orders": TopicChange("id", "id")}
    loss = Loss(reason=Reason.OFFSET_OUT_OF_RANGE, ranges={"orders/3": (20, 30)}, topics=topics)
    cassandra.accept_loss(mine, loss, Acceptance(by="ann", choice="", at=NOW))
    assert records.offsets({"orders": "id"}) == {"orders/3": {7, 9}}
    assert records.offsets({"orders": "id", "views": "v"}) == {"orders/3": {7, 9}, "views/3": {1}}


def test_without_the_table_nothing_is_left_out(cassandra: CassandraFenceTable) -> None:
    assert LeftOutRecords(cassandra.session, "absent", "p").offsets({"orders": "id"}) == {}
