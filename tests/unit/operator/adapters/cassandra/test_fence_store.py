"""Sessions are shared, recreated when they keep failing, and not asked for at once when they cannot be made."""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID

import pytest

from fakes.connections import connection_to
from fakes.fence_stores import CassandraFenceStore
from fencepost.contract import CassandraEndpoint
from fencepost.fence import (
    EMPTY,
    FenceCredentialsRejected,
    FenceRow,
    FenceRowInvalid,
    FenceSchemaMissing,
    FenceUnauthorized,
    FenceUnavailable,
)
from fencepost.fence.cassandra.table import CassandraFenceTable
from fencepost.fence.history import Change, change, hour_of
from fencepost.fence.memory import MemoryFenceTable
from fencepost.fence.snapshots import Snapshot, snapshot_id
from fencepost_operator.adapters import fence_store
from fencepost_operator.adapters.cassandra import fences, login
from fencepost_operator.api import ObjectKey
from fencepost_operator.errors import Denied, Rejected, Unreachable
from fencepost_operator.observation import NoStart, StartingPoint
from present import present

PLACE = connection_to("cassandra", credentials_secret="account", create_schema=True)  # noqa: S106 - a name


class Cassandra:
    """Stands where the driver would: sessions that are counted, and one table behind all of them."""

    def __init__(self) -> None:
        self.table = MemoryFenceTable()
        self.opened: list[Mapping[str, Any]] = []
        self.closed = 0
        self.failure: Exception | None = None
        self.schema = True
        self.made: list[Mapping[str, Any]] = []

    def connect(self, _endpoint: CassandraEndpoint, **place: Any) -> Any:
        if self.failure is not None:
            raise self.failure
        self.opened.append(place)
        return self

    @property
    def cluster(self) -> Any:
        return self

    def shutdown(self) -> None:
        self.closed += 1

    def over(self, session: Any, keyspace: str) -> Any:
        assert session is self
        assert keyspace == "k"
        return _Table(self)

    def create_schema(self, session: Any, keyspace: str, replication: Mapping[str, Any]) -> None:
        assert session is self
        assert keyspace == "k"
        self.schema = True
        self.made.append(replication)


class _Table:
    def __init__(self, cassandra: Cassandra) -> None:
        self.cassandra = self.session = cassandra

    def __getattr__(self, name: str) -> Any:
        def call(*arguments: Any) -> Any:
            if not self.cassandra.schema:
                raise FenceSchemaMissing("no keyspace")
            if self.cassandra.failure is not None:
                raise self.cassandra.failure
            return getattr(self.cassandra.table, name)(*arguments)

        return call


class Secrets:
    def __init__(self) -> None:
        self.data: dict[str, str] = {"username": "u", "password": "p"}
        self.forgotten: list[str] = []

    async def secret(self, key: ObjectKey, name: str) -> Mapping[str, str]:
        assert (key.namespace, name) == ("n", "account")
        return self.data

    def forget_secrets(self, namespace: str) -> None:
        self.forgotten.append(namespace)


@pytest.fixture
def cassandra(monkeypatch: pytest.MonkeyPatch) -> Cassandra:
    made = Cassandra()
    monkeypatch.setattr(login, "connect", made.connect)
    monkeypatch.setattr(fences, "is_current", lambda *_: True)
    monkeypatch.setattr(fences, "create_schema", made.create_schema)
    monkeypatch.setattr(CassandraFenceTable, "over", made.over)
    monkeypatch.setattr(fence_store, "_PATIENCE", 0.0)
    return made


@pytest.fixture
def secrets() -> Secrets:
    return Secrets()


@pytest.fixture
async def store(cassandra: Cassandra, secrets: Secrets) -> AsyncIterator[CassandraFenceStore]:
    made = CassandraFenceStore(secrets)
    yield made
    await made.close()
    assert cassandra.closed == len(cassandra.opened)


async def test_one_session_serves_all(store: CassandraFenceStore, cassandra: Cassandra) -> None:
    await asyncio.gather(*(store.create(PLACE, f"p{number}", "me") for number in range(20)))
    rows = await asyncio.gather(*(store.read(PLACE, f"p{number}") for number in range(20)))
    assert all(row is not None and row.owner == "me" for row in rows)
    assert len(cassandra.opened) == 1
    assert cassandra.opened[0]["credentials"] == ("u", "p")


async def test_other_credentials_are_another_session(
    store: CassandraFenceStore, cassandra: Cassandra, secrets: Secrets
) -> None:
    await store.read(PLACE, "p")
    secrets.data = {"username": "u", "password": "changed"}
    await store.read(PLACE, "p")
    assert [place["credentials"] for place in cassandra.opened] == [("u", "p"), ("u", "changed")]


async def test_a_session_that_keeps_failing_is_recreated(cassandra: Cassandra, secrets: Secrets) -> None:
    store, now = CassandraFenceStore(secrets), 0.0
    store._sessions._monotonic = lambda: now
    await store.read(PLACE, "p")
    cassandra.failure = FenceUnavailable("no node answers")
    for _ in range(2):
        with pytest.raises(Unreachable, match="no node answers"):
            await store.read(PLACE, "p")
    cassandra.failure = None
    now = 4.0
    await store.read(PLACE, "p")
    assert len(cassandra.opened) == 2
    assert cassandra.closed == 1
    await store.close()


async def test_a_connection_that_failed_is_not_tried_again_at_once(cassandra: Cassandra, secrets: Secrets) -> None:
    store, now = CassandraFenceStore(secrets), 0.0
    store._sessions._monotonic = lambda: now
    cassandra.failure = FenceUnavailable("no answer")
    with pytest.raises(Unreachable, match="no answer"):
        await store.read(PLACE, "p")
    cassandra.failure = None
    with pytest.raises(Unreachable, match="no answer"):
        await store.read(PLACE, "p")
    now = 4.0
    assert await store.read(PLACE, "p") is None
    await store.close()


async def test_a_missing_schema_is_an_absent_row_and_made_on_creation(
    store: CassandraFenceStore, cassandra: Cassandra
) -> None:
    cassandra.schema = False
    assert await store.read(PLACE, "p") is None
    await store.release(PLACE, "p", 0, 0)
    with pytest.raises(Rejected, match="no keyspace") as caught:
        await store.create(replace(PLACE, create_schema=False), "p", "me")
    assert "createSchema" in caught.value.remedy
    await store.create(PLACE, "p", "me")
    assert cassandra.made == [{"class": "SimpleStrategy", "replication_factor": 1}]
    assert await store.read(PLACE, "p") == FenceRow(pipeline="p", owner="me")


async def test_refused_credentials_are_denied_without_the_users_name(
    store: CassandraFenceStore, cassandra: Cassandra
) -> None:
    cassandra.failure = FenceCredentialsRejected("bad credentials of u")
    with pytest.raises(Denied, match=r"bad credentials of \*\*\*") as caught:
        await store.read(PLACE, "p")
    assert "'u'" not in caught.value.remedy
    assert "credentialsFrom" in caught.value.remedy


async def test_a_secret_without_a_password_is_rejected(store: CassandraFenceStore, secrets: Secrets) -> None:
    secrets.data = {"username": "u"}
    with pytest.raises(Rejected, match="password") as caught:
        await store.read(PLACE, "p")
    assert "keys username and password" in caught.value.remedy


async def test_no_message_contains_the_password(store: CassandraFenceStore, cassandra: Cassandra) -> None:
    cassandra.failure = FenceUnavailable("no answer")
    with pytest.raises(Unreachable) as caught:
        await store.read(replace(PLACE), "p")
    assert "'p'" not in repr(caught.value)


async def test_one_attempt_creates_the_schema_even_when_those_who_wait_give_up(
    store: CassandraFenceStore, cassandra: Cassandra, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Injected: Cassandra takes longer for the tables than a caller waits; a second attempt beside it is the race."""
    cassandra.schema = False
    begun, finish = threading.Event(), threading.Event()
    attempts: list[str] = []

    def slow(session: Any, keyspace: str, replication: Mapping[str, Any]) -> None:
        attempts.append(keyspace)
        begun.set()
        finish.wait()
        cassandra.create_schema(session, keyspace, replication)

    waiting: list[asyncio.Task[None]] = []
    all_wait = asyncio.Event()
    succeeded = fences._succeeded

    async def counted(attempt: asyncio.Task[None]) -> bool:
        waiting.append(attempt)
        if len(waiting) == 3:
            all_wait.set()
        return await succeeded(attempt)

    monkeypatch.setattr(fences, "create_schema", slow)
    monkeypatch.setattr(fences, "_succeeded", counted)
    first = asyncio.create_task(store.create(PLACE, "p", "me"))
    await asyncio.to_thread(begun.wait)
    first.cancel()
    others = [asyncio.create_task(store.create(PLACE, f"p{number}", "me")) for number in range(3)]
    with contextlib.suppress(asyncio.CancelledError):
        await first
    assert len(store._creating) == 1, "it continues without its first caller"
    await all_wait.wait()  # one that comes after the end makes an attempt of its own
    finish.set()
    await asyncio.gather(*others)
    assert attempts == ["k"]


async def test_who_waits_for_an_attempt_that_fails_makes_its_own(
    store: CassandraFenceStore, cassandra: Cassandra, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Injected: the first account may not create tables; of the three that wait, the first one may."""
    cassandra.schema = False
    begun, finish = threading.Event(), threading.Event()
    attempts: list[int] = []
    running = [0, 0]

    def create(session: Any, keyspace: str, replication: Mapping[str, Any]) -> None:
        attempts.append(len(attempts))
        running[0] += 1
        running[1] = max(running)
        try:
            if len(attempts) == 1:
                begun.set()
                finish.wait()
                raise FenceUnauthorized("the account may not create tables")
            cassandra.create_schema(session, keyspace, replication)
        finally:
            running[0] -= 1

    monkeypatch.setattr(fences, "create_schema", create)
    first = asyncio.create_task(store.create(PLACE, "p", "me"))
    await asyncio.to_thread(begun.wait)
    others = [asyncio.create_task(store.create(PLACE, f"p{number}", "me")) for number in range(3)]
    await asyncio.sleep(0.1)
    finish.set()
    with pytest.raises(Denied, match="may not create tables"):
        await first
    await asyncio.gather(*others)
    assert attempts == [0, 1], "the second attempt succeeded, and for all"
    assert running[1] == 1, "one at a time"


async def test_each_account_that_may_not_create_tables_hears_it_of_its_own_attempt(
    store: CassandraFenceStore, cassandra: Cassandra, monkeypatch: pytest.MonkeyPatch
) -> None:
    cassandra.schema = False
    refusals = iter(range(10))

    def refuse(*_: object) -> None:
        raise FenceUnauthorized(f"refusal {next(refusals)}")

    monkeypatch.setattr(fences, "create_schema", refuse)
    found = await asyncio.gather(
        *(store.create(PLACE, f"p{number}", "me") for number in range(3)), return_exceptions=True
    )
    assert sorted(str(each).rpartition(": ")[2] for each in found) == ["refusal 0", "refusal 1", "refusal 2"]


async def test_a_wrong_value_in_the_row_is_rejected_with_a_remedy_for_the_row(
    store: CassandraFenceStore, cassandra: Cassandra
) -> None:
    cassandra.failure = None
    await store.read(PLACE, "p")
    cassandra.failure = FenceRowInvalid("column epoch of the fence row holds null")
    with pytest.raises(Rejected, match="column epoch") as caught:
        await store.read(PLACE, "p")
    assert "table fence of keyspace 'k'" in caught.value.remedy
    cassandra.failure = None
    await store.read(PLACE, "other")
    assert len(cassandra.opened) == 1, "the session stays, and other pipelines read"


@dataclass(slots=True)
class Snapshots:
    """The snapshots of pipeline p."""

    found: dict[UUID, Snapshot] = field(default_factory=dict)

    def read(self, pipeline: str, id: UUID) -> Snapshot | None:  # noqa: A002 - as in the table
        assert pipeline == "p"
        return self.found.get(id)


async def test_a_rewind_sets_the_state_of_the_snapshot_that_it_names(
    store: CassandraFenceStore, cassandra: Cassandra, monkeypatch: pytest.MonkeyPatch
) -> None:
    with_state, without, other, gone = (
        snapshot_id(datetime(2026, 1, 2, tzinfo=UTC), name) for name in ("with", "without", "other", "gone")
    )
    target = {"t/0": 3}
    snapshots = Snapshots(
        {
            with_state: Snapshot(id=with_state, trigger="Schedule", offsets=target, checkpoint=b"state"),
            without: Snapshot(id=without, trigger="Schedule", offsets=target),
            other: Snapshot(id=other, trigger="Schedule", offsets={"t/0": 4}, checkpoint=b"other state"),
        }
    )
    monkeypatch.setattr(fences.CassandraPlace, "snapshots", property(lambda _: snapshots))
    await store.create(PLACE, "p", "me")

    async def rewind(snapshot: UUID | None, *, keeps_output: bool = True) -> bytes | None:
        row = present(cassandra.table.read("p"))
        await store.rewind(
            PLACE, "p", epoch=row.epoch, version=row.version, offsets=target, leader_epochs={}, growth_barrier={},
            keeps_output=keeps_output, snapshot=str(snapshot) if snapshot else None,
        )  # fmt: skip
        return present(cassandra.table.read("p")).checkpoint

    assert await rewind(with_state) == b"state"
    assert await rewind(without) == EMPTY, "one from before the first commit"
    assert await rewind(with_state) == b"state"
    for lost in (gone, other):
        with pytest.raises(Rejected, match="does not exist any more, or has other offsets") as refused:
            await rewind(lost)
        assert "to another snapshot" in refused.value.remedy
        with pytest.raises(Rejected) as refused:
            await rewind(lost, keeps_output=False)
        assert "to an earlier snapshot, because the output beyond the target is already" in refused.value.remedy
    assert present(cassandra.table.read("p")).checkpoint == b"state"
    assert await rewind(None) == EMPTY


@dataclass(slots=True)
class Changes:
    """The history of pipeline p; `asked` are the hours that were read."""

    found: list[Change] = field(default_factory=list)
    asked: list[datetime] = field(default_factory=list)

    def after(self, *place: Any, epoch: int, version: int, limit: int) -> list[Change]:
        *_, pipeline, hour = place
        assert pipeline == "p"
        self.asked.append(hour)
        later = [one for one in self.found if one.hour == hour and (one.epoch, one.version) > (epoch, version)]
        return sorted(later, key=lambda one: (one.epoch, one.version))[:limit]


@pytest.fixture
def history(monkeypatch: pytest.MonkeyPatch) -> Changes:
    made = Changes()
    monkeypatch.setattr(fences, "changes_after", made.after)
    return made


@pytest.mark.parametrize("moment", ["9999-12-31T23:59:59-12:00", "0001-01-01T00:00:00+12:00"])
async def test_only_hours_that_the_history_may_hold_are_read_whatever_moment_a_trial_names(
    store: CassandraFenceStore, history: Changes, moment: str
) -> None:
    """History of the defect: a timestamp in the year 9999 made a list of seventy million hours in the operator."""
    assert await store.committed_at(PLACE, "p", datetime.fromisoformat(moment), frozenset("t")) == NoStart()
    assert len(history.asked) <= 7 * 24 + 1


async def test_a_clock_that_no_date_has_is_taken_as_the_end_of_its_hour(
    store: CassandraFenceStore, history: Changes
) -> None:
    """A tenant's own Cassandra may return any number of 63 bits."""
    hour = hour_of(datetime.now(UTC)) - timedelta(hours=3)
    row = FenceRow(pipeline="p", owner="me", epoch=1, version=1, clock=2**63 - 1, offsets={"t/0": 7})
    history.found.append(change(None, row, hour))
    moment = hour - timedelta(minutes=1)
    found = await store.committed_at(PLACE, "p", moment, frozenset("t"))
    assert found == NoStart(earliest=hour + timedelta(hours=1))


async def test_a_start_is_known_from_the_first_claim_on_and_before_it_the_moment_is_said(
    store: CassandraFenceStore, history: Changes
) -> None:
    """The claim is of the hour after its takeover, and keeps the row's clock."""
    hour = hour_of(datetime.now(UTC)) - timedelta(hours=3)
    created = FenceRow(pipeline="p", owner="me")
    taken = replace(created, epoch=1, version=1, clock=round((hour.timestamp() - 10) * 1e6))
    claimed = replace(taken, version=2, driver="pod", offsets={"t/0": 7}, topic_ids={"t": "id"})
    began = hour + timedelta(seconds=5)
    for row, at in ((created, hour - timedelta(seconds=20)), (taken, hour - timedelta(seconds=10)), (claimed, began)):
        history.found.append(replace(change(None, row, at), written_at=round(at.timestamp() * 1e6)))

    async def start(moment: datetime, *topics: str) -> StartingPoint | NoStart:
        return await store.committed_at(PLACE, "p", moment, frozenset(topics))

    for early in (timedelta(days=1), timedelta(seconds=15), timedelta(seconds=5)):
        assert await start(hour - early, "t") == NoStart(earliest=began)
    assert await start(began, "t") == StartingPoint(offsets={"t/0": 7}, topic_ids={"t": "id"}, clock=taken.clock)
    assert await start(began, "t", "u") == NoStart()
