"""What the command line reads of a fence in a real PostgreSQL, and how it reports a refusal."""

from __future__ import annotations

import uuid
from contextlib import closing
from dataclasses import replace
from datetime import UTC, datetime

import pytest

from contract.conftest import POSTGRESQL_SCHEMA
from contract.postgresql import endpoint_of, session_with
from contract.test_postgresql_letters import made
from fencepost.contract import Acceptance, Loss, Reason, ReportedLoss, TopicChange
from fencepost.fence import Fence, FenceRow, Starting
from fencepost.fence.history import hour_of
from fencepost.fence.left_out import LeftOut
from fencepost.fence.postgresql.dead_letters import DeadLetters
from fencepost.fence.postgresql.snapshots import SnapshotTable
from fencepost.fence.postgresql.table import PostgresqlFenceTable
from fencepost.fence.snapshots import Trigger, snapshot_id, snapshot_of
from fencepost_cli.errors import CliError
from fencepost_cli.ports import PostgresqlAccess
from fencepost_cli.stores.fence_stores import open_store
from postgresql_server import USER, Server, free_port
from present import present

pytestmark = pytest.mark.integration

AT = datetime(2026, 1, 2, tzinfo=UTC)


def access_to(server: Server, pipeline: str, *, user: str = USER) -> PostgresqlAccess:
    return PostgresqlAccess(
        pipeline=pipeline,
        schema=POSTGRESQL_SCHEMA,
        endpoint=endpoint_of(server, host="127.0.0.1"),
        credentials=(user, ""),
    )


def started(_row: FenceRow) -> Starting:
    return Starting(offsets={"orders/3": 0}, planned={"orders/3": 9}, topic_ids={"orders": "id"})


def test_row_history_snapshots_letters_and_losses_are_read(server: Server, postgresql: PostgresqlFenceTable) -> None:
    pipeline = f"contract/{uuid.uuid4()}/p"
    fence = Fence(postgresql, pipeline)
    fence.take_over(fence.create("cluster/cr"), owner="cluster/cr")
    held = fence.claim(epoch=1, driver="pod", code="c", start=started)
    last = fence.commit(held, offsets={"orders/3": 9}, planned={"orders/3": 9}, records=9, duration_ms=1)
    with closing(session_with(server)) as session:
        place = session, postgresql.schema, pipeline
        kept = snapshot_of(last, id=snapshot_id(AT, pipeline), trigger=Trigger.ON_DEMAND, name="v1")
        SnapshotTable(*place[:2]).insert(pipeline, kept)
        DeadLetters(*place).write(made(7), retention=3600.0)
    ranges, topics = {"orders/3": (2, 4)}, {"orders": TopicChange("id", "id")}
    loss = Loss(reason=Reason.OFFSET_OUT_OF_RANGE, ranges=ranges, topics=topics, committed_ms=5)
    postgresql.report_loss(pipeline, ReportedLoss(loss=loss, epoch=1, at=AT))
    postgresql.accept_loss(pipeline, loss, Acceptance(by="kim", choice="", at=AT))
    with open_store(access_to(server, pipeline)) as store:
        assert present(store.row()).offsets == {"orders/3": 9}
        hours = {hour_of(datetime.now(UTC)), hour_of(present(last.committed_at))}
        versions = [one.version for hour in sorted(hours) for one in store.changes(hour)]
        assert versions == [*range(last.version + 1)]
        assert present(store.first_change(min(hours), epoch=1)).epoch == 1
        assert [(one.name, one.offsets) for one in store.snapshots()] == [("v1", {"orders/3": 9})]
        assert present(store.snapshot(kept)).version == last.version
        (letter,) = store.letters("orders", 3, start=0, until=9)
        assert present(store.letter(letter)).value == b"{"
        store.mark_retried(letter, by="ann", at=AT, to="orders/3@20")
        assert present(store.letter(letter)).retried_by == "ann"
        skipped = LeftOut(topic="orders", partition=3, offset=8, topic_id="id", leader_epoch=1, by="ann", at=AT)
        store.leave_out(skipped)
        assert [(one.partition, one.start, one.until) for one in store.accepted()] == [
            ("orders/3", 2, 4),
            ("orders/3", 8, 9),
        ]
        assert store.columns("shop", "orders") == ()
        with pytest.raises(CliError, match="not in the fence's PostgreSQL"):
            store.positions("shop", "orders", ["topic"])
        with pytest.raises(CliError, match="no state"):
            store.chunks()


def test_a_refusal_and_a_database_that_is_away_have_a_remedy(server: Server) -> None:
    there = access_to(server, "a/b/c")
    cases = {
        "credentialsFrom": replace(there, credentials=("unknown-account", "secret")),
        "--postgresql": replace(there, endpoint=replace(there.endpoint, port=free_port())),
        "spec.checkpoint.postgresql.database": replace(there, endpoint=replace(there.endpoint, database="nowhere")),
    }
    for remedy, access in cases.items():
        with pytest.raises(CliError) as refused, open_store(access):
            pass
        assert remedy in refused.value.remedy
        assert "secret" not in str(refused.value)
    with open_store(replace(there, schema="absent")) as store, pytest.raises(CliError) as missing:
        store.row()
    assert "checkpoint.postgresql.schema" in missing.value.remedy
