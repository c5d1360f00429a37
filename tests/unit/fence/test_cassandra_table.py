"""What the Cassandra driver raises, as the fence's errors: anything but a refusal leaves the outcome unknown."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from datetime import datetime
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from cassandra import AuthenticationFailed, ConsistencyLevel, InvalidRequest, OperationTimedOut, Unauthorized
from cassandra.cluster import NoHostAvailable
from cassandra.connection import ConnectionException, ConnectionShutdown
from cassandra.protocol import ErrorMessage, IsBootstrappingErrorMessage, OverloadedErrorMessage, ServerError

from fakes.cassandra_refusals import DISK_FULL, QUOTING, refused
from fencepost.contract import CassandraEndpoint, DriverConfig, FilesSink, KafkaSource
from fencepost.driver.connections import Connections
from fencepost.driver.environment import Environment
from fencepost.fence import (
    Fence,
    FenceCredentialsRejected,
    Fenced,
    FenceError,
    FenceRow,
    FenceSchemaInvalid,
    FenceSchemaMissing,
    FenceUnauthorized,
    FenceUnavailable,
    Starting,
)
from fencepost.fence.cassandra.history import HISTORY_ATTEMPTS
from fencepost.fence.cassandra.schema import FENCE
from fencepost.fence.cassandra.table import CassandraFenceTable
from present import present

COLUMNS = (*FENCE.columns, *FENCE.added)

OPEN = [
    ConnectionShutdown("the connection is closed"),
    ConnectionException("bad frame"),
    ErrorMessage(code=0x1700, message="CAS operation result is unknown", info=None),
    OverloadedErrorMessage(code=0x1001, message="overloaded", info=None),
    IsBootstrappingErrorMessage(code=0x1002, message="bootstrapping", info=None),
    ServerError(code=0, message="java.lang.NullPointerException", info=None),
    OperationTimedOut(),
    NoHostAvailable("no host", {"h": ConnectionException("down")}),
]


def silent(_text: str) -> None:
    """Let every statement pass."""


@dataclass
class Session:
    """One fence row behind the driver's calls. `before`, `after` and, for the history, `appending` may raise."""

    row: dict[str, Any] = field(default_factory=dict)
    before: Callable[[str], None] = silent
    after: Callable[[str], None] = silent
    appending: Callable[[str], None] = silent
    appended: list[tuple[Any, ...]] = field(default_factory=list)
    texts: list[str] = field(default_factory=list)
    columns: dict[str, str] = field(default_factory=lambda: {**FENCE.columns, **FENCE.added})

    def prepare(self, text: str) -> Any:
        return SimpleNamespace(text=text, consistency_level=None)

    def get_execution_profile(self, _name: object) -> Any:
        return SimpleNamespace(serial_consistency_level=ConsistencyLevel.SERIAL)

    def execute(self, statement: Any, values: tuple[Any, ...]) -> Any:
        if isinstance(statement, str):
            return self._schema(statement)
        if "fence_changes" in statement.text:
            self.appending(statement.text)
            self.appended.append(values)
            return None
        if "system.local" in statement.text:
            return SimpleNamespace(one=lambda: SimpleNamespace(now=datetime(2026, 1, 1)))  # noqa: DTZ001 - as the library
        self.texts.append(statement.text.split()[0])
        self.before(statement.text)
        applied = self._apply(statement.text, values)
        self.after(statement.text)
        if statement.text.startswith("SELECT"):
            return SimpleNamespace(one=lambda: SimpleNamespace(**self.row) if self.row else None)
        return SimpleNamespace(one=lambda: (applied,))

    def _schema(self, text: str) -> Any:
        if "system_schema.columns" in text:
            rows = [SimpleNamespace(column_name=name, type=kind) for name, kind in self.columns.items()]
            return SimpleNamespace(current_rows=rows)
        return SimpleNamespace(one=lambda: SimpleNamespace(keyspace_name="k"))

    def _apply(self, text: str, values: tuple[Any, ...]) -> bool:
        if text.startswith("INSERT"):
            names = re.findall(r"\w+", text.partition("(")[2].partition(")")[0])
            self.row = dict.fromkeys(COLUMNS) | dict(zip(names, values, strict=True))
        elif text.startswith("UPDATE"):
            if values[-3:] != tuple(self.row[name] for name in ("epoch", "version", "driver")):
                return False
            self.row |= dict(zip(re.findall(r"(\w+) = \?", text.partition(" WHERE ")[0]), values, strict=False))
        return True


@pytest.fixture
def session() -> Session:
    return Session()


@pytest.fixture
def table(session: Session) -> Iterator[CassandraFenceTable]:
    made: Any = session
    table = CassandraFenceTable.over(made, "k")
    yield table
    table.finish_history()


def once(verb: str, error: Exception, times: int = 1) -> Callable[[str], None]:
    """Raise at the first `times` statements of this verb."""
    left = [error] * times

    def fault(text: str) -> None:
        if text.startswith(verb) and left:
            raise left.pop()

    return fault


@pytest.mark.parametrize("error", OPEN, ids=lambda error: type(error).__name__)
def test_a_change_that_cassandra_does_not_take_at_once_is_appended_later(
    session: Session, table: CassandraFenceTable, monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    monkeypatch.setattr("fencepost.fence.cassandra.history.HISTORY_PAUSE", 0.0)
    session.appending = once("INSERT", error, HISTORY_ATTEMPTS - 1)
    Fence(table, "p").create("o")
    table.finish_history()
    assert len(session.appended) == 1


@pytest.mark.parametrize(
    ("error", "asked"), [(OperationTimedOut(), HISTORY_ATTEMPTS), (InvalidRequest("no such column"), 1)]
)
def test_a_change_that_cannot_be_appended_is_logged_as_lost(
    session: Session, table: CassandraFenceTable, caplog: pytest.LogCaptureFixture, error: Exception, asked: int
) -> None:
    session.appending = once("INSERT", error, asked)
    fence = Fence(table, "p")
    fence.take_over(fence.create("o"), owner="o")
    table.finish_history()
    assert len(session.appended) == 1  # the second change: the first was asked for `asked` times
    assert caplog.text.count("missing in the history") == 1


@pytest.mark.parametrize("error", OPEN, ids=lambda error: type(error).__name__)
@pytest.mark.parametrize("is_applied", [True, False])
def test_a_conditional_update_without_an_answer_is_settled_by_a_read(
    session: Session, table: CassandraFenceTable, error: Exception, *, is_applied: bool
) -> None:
    fence = Fence(table, "p", sleep=lambda _: None)
    before = fence.create("o")
    session.texts.clear()
    if is_applied:
        session.after = once("UPDATE", error)
    else:
        session.before = once("UPDATE", error)
    after = fence.take_over(before, owner="o")
    assert (after.epoch, after.version) == (1, 1)
    assert fence.read() == after
    assert session.texts[:-1] == (["UPDATE", "SELECT"] if is_applied else ["UPDATE", "SELECT", "UPDATE"])


def test_a_connection_that_died_under_a_change_that_lost_is_fenced(
    session: Session, table: CassandraFenceTable
) -> None:
    fence = Fence(table, "p", sleep=lambda _: None)
    before = fence.create("o")
    rival = Fence(table, "p").take_over(before, owner="rival")
    session.before = once("UPDATE", ConnectionShutdown("closed"))
    with pytest.raises(Fenced) as caught:
        fence.take_over(before, owner="o")
    assert caught.value.seen == rival


@pytest.mark.parametrize(
    ("error", "kind"),
    [
        *((error, FenceUnavailable) for error in OPEN),
        (Unauthorized("no"), FenceUnauthorized),
        (NoHostAvailable("no host", {"h": AuthenticationFailed("no")}), FenceCredentialsRejected),
        (InvalidRequest("Key may not be empty"), FenceSchemaInvalid),
        (refused(DISK_FULL), FenceUnavailable),
        (refused(QUOTING[-1]), FenceSchemaInvalid),
    ],
    ids=lambda value: type(value).__name__,
)
def test_each_error_of_the_driver_is_one_of_the_fence(
    session: Session, table: CassandraFenceTable, error: Exception, kind: type[FenceError]
) -> None:
    session.before = once("SELECT", error)
    with pytest.raises(kind):
        table.read("p")
    session.before = once("INSERT", error)
    with pytest.raises(kind):
        table.insert(FenceRow(pipeline="p", owner="o"))


def test_a_refused_request_is_a_missing_table_only_when_the_schema_says_so(
    session: Session, table: CassandraFenceTable
) -> None:
    assert table.read("p") is None

    def dropped(_text: str) -> None:
        session.columns.clear()
        raise InvalidRequest("unconfigured table")

    session.before = dropped
    with pytest.raises(FenceSchemaMissing, match=r"k\.fence"):
        table.read("p")


@pytest.mark.parametrize("says", ["table fence does not exist", "unconfigured table fence", "Undefined column name v"])
def test_a_table_that_one_node_does_not_know_yet_is_asked_again(
    session: Session, table: CassandraFenceTable, says: str
) -> None:
    """Injected: the table was created a moment ago, and the node that is asked does not know it yet."""
    fence = Fence(table, "p", sleep=lambda _: None)
    row = fence.create("o")
    session.before = once("SELECT", InvalidRequest(says))
    with pytest.raises(FenceUnavailable, match=says):
        fence.read()
    assert fence.read() == row
    session.before = once("UPDATE", InvalidRequest(says))
    assert fence.take_over(row, owner="o").epoch == 1


def test_a_permission_that_is_missing_for_a_moment_does_not_end_a_commit(
    session: Session, table: CassandraFenceTable
) -> None:
    """Injected: the only replica of system_auth is down, and Cassandra says that the account lacks MODIFY."""
    fence = Fence(table, "p", sleep=lambda _: None)
    before = fence.create("o")
    session.before = once("UPDATE", Unauthorized("User u has no MODIFY permission on <table k.fence>"))
    assert fence.take_over(before, owner="o").epoch == 1


def test_a_permission_that_stays_missing_is_reported_as_what_it_is(
    session: Session, table: CassandraFenceTable
) -> None:
    fence = Fence(table, "p", patience=0.0, sleep=lambda _: None)
    before = fence.create("o")
    session.before = once("UPDATE", Unauthorized("User u has no MODIFY permission on <table k.fence>"))
    with pytest.raises(FenceCredentialsRejected, match="MODIFY"):
        fence.take_over(before, owner="o")


def committed_row(table: CassandraFenceTable, *offsets: int) -> FenceRow:
    """Claim, then commit each offset of t/0 under leader epoch 4; return the row."""
    fence = Fence(table, "p", now=lambda: 1_767_225_600_000_000)
    fence.take_over(fence.create("o"), owner="o")
    start = Starting(offsets={"t/0": 0}, planned={"t/0": 0}, topic_ids={"t": "id"}, leader_epochs={"t/0": 4})
    row = fence.claim(epoch=1, driver="d", code="c", start=lambda _: start)
    for offset in offsets:
        ends = {"t/0": offset}
        row = fence.commit(row, offsets=ends, planned=ends, records=1, duration_ms=1, leader_epochs={"t/0": 4})
    return row


def test_leader_epochs_are_read_back_until_another_writer_moves_the_offsets(table: CassandraFenceTable) -> None:
    row = committed_row(table, 5, 9)
    assert table.read("p") == row
    assert row.leader_epochs == {"t/0": 4}
    taken = Fence(table, "p").take_over(row, owner="o")
    assert table.read("p") == taken
    assert taken.leader_epochs == {"t/0": 4}


@pytest.mark.parametrize("moved", [{"offsets": {"t/0": 12}}, {"topic_ids": {"t": "recreated"}}])
def test_leader_epochs_that_an_older_release_left_behind_are_dropped(
    session: Session, table: CassandraFenceTable, moved: dict[str, Any]
) -> None:
    """An older release commits offsets and leaves this column: epoch 4 with offset 12 looks like a truncated log."""
    row = committed_row(table, 5)
    session.row |= {"version": row.version + 1, **moved}
    found = present(table.read("p"))
    assert found.leader_epochs == {}
    current = Fence(table, "p").take_over(found, owner="o")
    assert table.read("p") == current


def test_leader_epochs_without_proof_of_their_offsets_are_dropped(session: Session, table: CassandraFenceTable) -> None:
    committed_row(table, 5)
    session.row |= {"leader_epochs": {"t/0": 4}}
    found = present(table.read("p"))
    assert found.leader_epochs == {}


def test_a_stateless_pipeline_never_writes_the_column_of_a_checkpoint(
    session: Session, table: CassandraFenceTable
) -> None:
    """A null that is bound is a tombstone, and bytes in each of a transaction's rounds."""
    written: list[str] = []
    session.before = lambda text: written.append(text) if not text.startswith("SELECT") else None
    fence = Fence(table, "p", now=lambda: 1_767_225_600_000_000)
    taken = fence.take_over(fence.create("o"), owner="o")
    start = Starting(offsets={"a/0": 0}, planned={"a/0": 0}, topic_ids={"a": "id"})
    row = fence.claim(epoch=taken.epoch, driver="d", code="c", start=lambda _row: start)
    row = fence.plan(row, offsets=row.offsets, planned={"a/0": 5})
    fence.commit(row, offsets={"a/0": 5}, planned={"a/0": 5}, records=1, duration_ms=1)
    assert len(written) == 5
    assert not any("checkpoint" in text or "planned_log" in text for text in written)


def test_state_that_the_table_cannot_keep_is_not_dropped(session: Session, table: CassandraFenceTable) -> None:
    """Offsets that move without their state would lose it; once the columns are there, they are used."""
    for name in ("checkpoint", "planned_log"):
        del session.columns[name]
    fence = Fence(table, "p", now=lambda: 1_767_225_600_000_000)
    taken = fence.take_over(fence.create("o"), owner="o")
    start = Starting(offsets={"a/0": 0}, planned={"a/0": 0}, topic_ids={"a": "id"})
    row = fence.claim(epoch=taken.epoch, driver="d", code="c", start=lambda _row: start)
    with pytest.raises(FenceSchemaInvalid, match=r"k\.fence has no column planned_log"):
        fence.plan(row, offsets=row.offsets, planned={"a/0": 5}, planned_log=b"log")
    with pytest.raises(FenceSchemaInvalid, match=r"k\.fence has no column checkpoint"):
        fence.commit(row, offsets={}, planned={}, records=1, duration_ms=1, checkpoint=b"state")
    assert session.row["version"] == row.version
    session.columns |= FENCE.added
    fence.plan(row, offsets=row.offsets, planned={"a/0": 5}, planned_log=b"log")
    assert session.row["planned_log"] == b"log"


def test_a_sink_of_files_is_refused_by_a_table_that_cannot_keep_its_token(
    session: Session, table: CassandraFenceTable, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Before the first batch: without the token, committed files are taken for those of a failed attempt."""
    del session.columns["output_token"]
    fence = Fence(table, "p", now=lambda: 1_767_225_600_000_000)
    taken = fence.take_over(fence.create("o"), owner="o")
    monkeypatch.setattr(CassandraFenceTable, "connect", lambda *_, **__: table)
    config = DriverConfig(
        pipeline="p", owner="o", epoch=taken.epoch, entrypoint="m:f", args=(), code="c",
        source=KafkaSource(bootstrap_servers="k:9092", topics=("t",)), sinks=(),
        cassandra=CassandraEndpoint(contact_points=("c",)), fence_keyspace="k", consistency="ONE", batch_interval=1.0,
        spark_master="local", spark_conf={}, executors=1, termination_grace=30.0,
    )  # fmt: skip
    environment = Environment(driver="d", credentials=None, variables={}, termination_log=Path("log"))

    def connect(*sinks: FilesSink) -> object:
        own = replace(config, sinks=sinks)
        return Connections(own, environment, stopping=lambda: False, lap=lambda _: None).fence().table

    assert connect() is table
    sink = FilesSink(name="rows", path="file:///rows")
    with pytest.raises(FenceSchemaInvalid, match=r"ALTER TABLE k\.fence ADD output_token bigint"):
        connect(sink)
    session.columns |= FENCE.added
    assert connect(sink) is table
