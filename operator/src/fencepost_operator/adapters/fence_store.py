"""The fence rows, by `fencepost.fence` in a bounded pool of threads, over a small cache of Cassandra sessions."""

from __future__ import annotations

import asyncio
import logging
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Final, Protocol, TypeVar

from cassandra.cluster import Session

from fencepost.contract import CassandraEndpoint
from fencepost.fence import (
    Fence,
    FenceCredentialsRejected,
    Fenced,
    FenceError,
    FenceMissing,
    FenceRow,
    FenceSchemaMissing,
    FenceUnavailable,
)
from fencepost.fence.cassandra import CassandraFenceTable, connect, create_schema
from fencepost_operator.api import CassandraConnection, ObjectKey
from fencepost_operator.errors import Conflict, Denied, FencepostError, Rejected, Unreachable

log = logging.getLogger(__name__)

_T = TypeVar("_T")
_THREADS: Final = 16
_THREADS_A_CLUSTER: Final = 4
"""So that one database that hangs cannot take every thread."""
_PATIENCE: Final = 10.0
"""Seconds that a change without an answer is pursued here; after that the loop looks again."""
_ANSWER_WITHIN: Final = 40.0
_IDLE: Final = 600.0
"""Seconds after which a session that nobody used is closed."""
_FAIL_FAST: Final = 3.0
"""Seconds after a failed connection in which no new one is tried."""
_STRIKES: Final = 2
"""Failures in a row after which a session is made anew, with fresh name resolution."""


class SecretReader(Protocol):
    """The part of the Objects port that reads credentials."""

    async def secret(self, key: ObjectKey, name: str) -> Mapping[str, str]:
        """Return a Secret's decoded data."""
        ...


@dataclass(frozen=True, slots=True)
class _Place:
    """What makes two sessions the same."""

    endpoint: CassandraEndpoint
    consistency: str
    credentials: tuple[str, str] | None = field(repr=False)

    def __str__(self) -> str:
        return f"Cassandra at {self.endpoint.address}"

    def open(self) -> Session:
        """Connect. Raises FenceError."""
        return connect(self.endpoint, credentials=self.credentials, consistency=self.consistency)


class CassandraFenceStore:
    """Implements the FenceStore port; `close` ends all sessions."""

    def __init__(self, secrets: SecretReader) -> None:
        self._secrets = secrets
        self._pool = ThreadPoolExecutor(max_workers=_THREADS, thread_name_prefix="fence")
        self._sessions = _Sessions()
        self._turns: dict[_Place, asyncio.Semaphore] = {}

    async def read(self, connection: CassandraConnection, pipeline: str) -> FenceRow | None:
        """Return the row at SERIAL, or None, also when its table does not exist yet."""
        try:
            return await self._with_table(connection, lambda table: Fence(table, pipeline, patience=_PATIENCE).read())
        except _SchemaMissing:
            return None

    async def create(self, connection: CassandraConnection, pipeline: str, owner: str) -> None:
        """Insert the row at epoch 0 unless it is there, making the schema when it is missing and may be made."""

        def insert(table: CassandraFenceTable) -> None:
            Fence(table, pipeline, patience=_PATIENCE).create(owner)

        try:
            await self._with_table(connection, insert)
        except _SchemaMissing:
            if not connection.create_schema:
                raise
            replication: dict[str, str | int] = {
                "class": connection.replication_class,
                "replication_factor": connection.replication_factor,
            }
            await self._with_table(
                connection, lambda table: create_schema(table.session, connection.keyspace, replication)
            )
            await self._with_table(connection, insert)

    async def take_over(
        self, connection: CassandraConnection, pipeline: str, epoch: int, version: int, owner: str
    ) -> FenceRow:
        """Move the row from (epoch, version) to (epoch + 1, no driver). Raises Conflict when it is elsewhere."""

        def fence(table: CassandraFenceTable) -> FenceRow:
            holder = Fence(table, pipeline, patience=_PATIENCE)
            return holder.take_over(_expected(holder.read(), pipeline, epoch, version), owner=owner)

        return await self._with_table(connection, fence)

    async def delete(self, connection: CassandraConnection, pipeline: str, epoch: int, version: int) -> None:
        """Release the row, and delete its history and snapshots. Raises Conflict when the row is elsewhere."""

        def drop(table: CassandraFenceTable) -> None:
            holder = Fence(table, pipeline, patience=_PATIENCE)
            row = holder.read()
            if row is None:
                holder.forget()
            else:
                holder.release(_expected(row, pipeline, epoch, version))

        try:
            await self._with_table(connection, drop)
        except _SchemaMissing:
            return

    async def close(self) -> None:
        """End all sessions."""
        await asyncio.to_thread(self._sessions.close)
        self._pool.shutdown(wait=False, cancel_futures=True)

    async def _with_table(self, connection: CassandraConnection, work: Callable[[CassandraFenceTable], _T]) -> _T:
        place = await self._place(connection)
        turns = self._turns.setdefault(place, asyncio.Semaphore(_THREADS_A_CLUSTER))
        loop = asyncio.get_running_loop()
        try:
            async with asyncio.timeout(_ANSWER_WITHIN):
                await turns.acquire()
                job = self._pool.submit(self._call, place, connection.keyspace, work)
                # The turn ends with the thread's work, not with the patience of who waits for it.
                job.add_done_callback(lambda _: loop.call_soon_threadsafe(turns.release))
                return await asyncio.wrap_future(job)
        except TimeoutError as error:
            raise Unreachable(f"{place} gave no answer in {_ANSWER_WITHIN:.0f} s", remedy=_CHECK) from error
        finally:
            for idle in self._sessions.idle():
                self._turns.pop(idle, None)
                self._pool.submit(self._sessions.drop, idle)

    def _call(self, place: _Place, keyspace: str, work: Callable[[CassandraFenceTable], _T]) -> _T:
        """Do the work in a thread of the pool."""
        with _translated(place, keyspace), self._sessions.use(place, keyspace) as table:
            return work(table)

    async def _place(self, connection: CassandraConnection) -> _Place:
        return _Place(
            endpoint=connection.endpoint,
            consistency=connection.consistency,
            credentials=await self._credentials(connection),
        )

    async def _credentials(self, connection: CassandraConnection) -> tuple[str, str] | None:
        name = connection.credentials_secret
        if name is None:
            return None
        data = await self._secrets.secret(ObjectKey(connection.namespace, name), name)
        try:
            return data["username"], data["password"]
        except KeyError as error:
            raise Rejected(
                f"Secret {connection.namespace}/{name} has no key {error}",
                remedy=f"give Secret {name} the keys username and password",
            ) from error


@dataclass(slots=True)
class _Entry:
    """One session and the tables that were prepared on it."""

    session: Session
    tables: dict[str, CassandraFenceTable] = field(default_factory=dict)
    used_at: float = 0.0
    users: int = 0
    strikes: int = 0


class _Sessions:
    """Sessions by place, shared by threads."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._entries: dict[_Place, _Entry] = {}
        self._opening: dict[_Place, threading.Lock] = {}
        self._failed: dict[_Place, tuple[float, FenceError]] = {}

    @contextmanager
    def use(self, place: _Place, keyspace: str) -> Iterator[CassandraFenceTable]:
        """Lend the table of a keyspace; a session that keeps failing is dropped afterwards."""
        entry = self._entry(place)
        with self._lock:
            entry.users += 1
            if keyspace not in entry.tables:
                entry.tables[keyspace] = CassandraFenceTable.over(entry.session, keyspace)
        failed = False
        try:
            yield entry.tables[keyspace]
        except (FenceUnavailable, FenceCredentialsRejected):
            failed = True
            raise
        finally:
            with self._lock:
                entry.users -= 1
                entry.used_at = time.monotonic()
                entry.strikes = entry.strikes + 1 if failed else 0
                bad = entry.strikes >= _STRIKES and entry.users == 0 and self._entries.get(place) is entry
                if bad:
                    del self._entries[place]
            if bad:
                _end(entry.session)

    def idle(self) -> list[_Place]:
        """Return the places that nobody used for long."""
        now = time.monotonic()
        with self._lock:
            return [p for p, e in self._entries.items() if e.users == 0 and now - e.used_at > _IDLE]

    def drop(self, place: _Place) -> None:
        """Close one session unless it is in use."""
        with self._lock:
            entry = self._entries.get(place)
            if entry is None or entry.users:
                return
            del self._entries[place]
        _end(entry.session)

    def close(self) -> None:
        """Close all sessions."""
        with self._lock:
            entries, self._entries = list(self._entries.values()), {}
        for entry in entries:
            _end(entry.session)

    def _entry(self, place: _Place) -> _Entry:
        with self._lock:
            entry = self._entries.get(place)
            opening = self._opening.setdefault(place, threading.Lock())
        if entry is not None:
            return entry
        with opening:  # one thread connects, the others wait for it
            with self._lock:
                if place in self._entries:
                    return self._entries[place]
                failed_at, error = self._failed.get(place, (-_FAIL_FAST, None))
            if error is not None and time.monotonic() - failed_at < _FAIL_FAST:
                raise error
            try:
                session = place.open()
            except FenceError as failure:
                with self._lock:
                    self._failed[place] = (time.monotonic(), failure)
                raise
            with self._lock:
                self._failed.pop(place, None)
                self._entries[place] = _Entry(session, used_at=time.monotonic())
                return self._entries[place]


def _end(session: Session) -> None:
    try:
        session.cluster.shutdown()
    except Exception as error:  # noqa: BLE001 - the driver's; a session that will not close is no reason to fail
        log.warning("a Cassandra session did not close: %s", error)


def _expected(row: FenceRow | None, pipeline: str, epoch: int, version: int) -> FenceRow:
    if row is None:
        raise Conflict(f"the fence row of {pipeline} is gone (epoch {epoch} was expected)")
    if (row.epoch, row.version) != (epoch, version):
        raise Conflict(
            f"the fence row of {pipeline} is at epoch {row.epoch} version {row.version},"
            f" not at epoch {epoch} version {version}"
        )
    return row


class _SchemaMissing(Rejected):
    """The keyspace or the tables are not there, or are not ours."""


_CHECK: Final = "check that Cassandra runs and that the operator's namespace may reach it"


@contextmanager
def _translated(place: _Place, keyspace: str) -> Iterator[None]:
    try:
        yield
    except FencepostError:
        raise
    except (Fenced, FenceMissing) as error:
        raise Conflict(str(error)) from error
    except FenceUnavailable as error:
        raise Unreachable(f"{place}: {error}", remedy=_CHECK) from error
    except FenceCredentialsRejected as error:
        user = f"user {place.credentials[0]!r}" if place.credentials else "anonymous users"
        raise Denied(
            f"{place}: {error}",
            remedy=f"check the Secret in checkpoint.cassandra.credentialsFrom and what {user} may do in {keyspace!r}",
        ) from error
    except FenceSchemaMissing as error:
        raise _SchemaMissing(
            f"{place}: {error}",
            remedy=f"create keyspace {keyspace!r} and its tables, or set checkpoint.cassandra.createSchema: true",
        ) from error
