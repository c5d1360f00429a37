"""The fences in Cassandra, on sessions that one tenant cannot use up for another."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Final, TypeVar

from cassandra import RequestExecutionException
from cassandra.cluster import Session
from cassandra.protocol import ErrorMessage

from fencepost.fence import FenceUnavailable
from fencepost.fence.cassandra.history import changes_after
from fencepost.fence.cassandra.snapshots import SnapshotTable
from fencepost.fence.cassandra.table import CassandraFenceTable, create_schema, is_current, new_replication
from fencepost.fence.history import Change
from fencepost.state.cassandra import CassandraChunks, CassandraFileIndex
from fencepost.state.collector import forget
from fencepost.state.state_check import StateCheck, check_files
from fencepost_operator.adapters.cassandra.durability_settings import read_settings
from fencepost_operator.adapters.cassandra.login import NONE_ANSWERS, Login, login_of
from fencepost_operator.adapters.fence_errors import CASSANDRA, translated
from fencepost_operator.adapters.fence_sessions import Client, Limits, Sessions
from fencepost_operator.adapters.fence_store import Work
from fencepost_operator.api import CassandraConnection
from fencepost_operator.endpoints import EndpointPolicy
from fencepost_operator.errors import Denied, Rejected, Unreachable
from fencepost_operator.observation import CassandraSettings
from fencepost_operator.ports import SecretReader

log = logging.getLogger(__name__)

_T = TypeVar("_T")
_ANSWER_WITHIN: Final = 40.0
_SCHEMAS: Final = 1000
"""How many keyspaces are remembered as migrated."""


@dataclass(frozen=True, slots=True)
class CassandraPlace:
    """A keyspace."""

    table: CassandraFenceTable
    changes_at_once: int = 2_000

    @property
    def snapshots(self) -> SnapshotTable:
        """The snapshots."""
        return SnapshotTable(self.table.session, self.table.keyspace)

    def changes_after(self, pipeline: str, hour: datetime, *, epoch: int, version: int, limit: int) -> Sequence[Change]:
        """Return the first changes of an hour that came after this one."""
        place = self.table.session, self.table.keyspace
        return changes_after(*place, pipeline, hour, epoch=epoch, version=version, limit=limit)

    def check_state(self, pipeline: str, checkpoint: bytes, *, start: int) -> StateCheck:
        """Look for the next files of a checkpoint."""
        chunks = CassandraChunks(self.table.session, self.table.keyspace, pipeline)
        return check_files(checkpoint, chunks, start=start)

    def forget_state(self, pipeline: str) -> None:
        """Delete the files of a stateful pipeline, as far as there are tables for them."""
        place = self.table.session, self.table.keyspace, pipeline
        index = CassandraFileIndex(*place)
        if index.is_there():
            forget(CassandraChunks(*place), index)


def _end(session: Session) -> None:
    session.cluster.shutdown()


CLIENT: Final = Client(
    name="Cassandra",
    place=lambda session, keyspace: CassandraPlace(CassandraFenceTable.over(session, keyspace)),
    end=_end,
    none_answers=NONE_ANSWERS,
    is_answer=lambda cause: isinstance(cause, (RequestExecutionException, ErrorMessage)),
)


class CassandraFences:
    """Those of all clusters; `close` ends all sessions."""

    def __init__(
        self, secrets: SecretReader, limits: Limits | None = None, *, policy: EndpointPolicy | None = None
    ) -> None:
        self._secrets = secrets
        self._sessions: Sessions[Login, Session, CassandraPlace] = Sessions(CLIENT, limits, policy=policy)
        self._creating: dict[_Schema, asyncio.Task[None]] = {}
        self._current: set[_Schema] = set()

    async def close(self) -> None:
        """End all sessions."""
        for attempt in self._creating.values():
            attempt.cancel()
        await self._sessions.close()

    async def migrate(self, connection: CassandraConnection) -> None:
        """Add what a later release added to the tables; without the right to do so they are used as they are."""
        schema = _schema(connection)
        if not connection.create_schema or schema in self._current:
            return
        try:
            if not await self._in_keyspace(
                connection, lambda place: is_current(place.table.session, connection.keyspace)
            ):
                await self.create_schema(connection)
        except (Denied, Rejected) as error:
            log.warning("keyspace %s keeps its older tables: %s", connection.keyspace, error)
            return
        if len(self._current) >= _SCHEMAS:
            self._current.clear()
        self._current.add(schema)

    async def create_schema(self, connection: CassandraConnection) -> None:
        """Create and add what is missing, one attempt at a time for each keyspace of a cluster.

        Other callers wait.  They share a success; after a failure, which may be due to that attempt's account, each
        makes its own attempt.  An attempt ends when Cassandra has answered each statement, not when its caller times
        out: concurrent attempts are the race that this prevents.
        """
        schema = _schema(connection)
        try:
            async with asyncio.timeout(_ANSWER_WITHIN):
                while (other := self._creating.get(schema)) is not None:
                    if await _succeeded(other):
                        return
                attempt = self._creating[schema] = asyncio.create_task(self._apply_schema(connection))
                attempt.add_done_callback(lambda done: self._created(schema, done))
                await asyncio.shield(attempt)
        except TimeoutError as error:
            raise Unreachable(
                f"creating the tables in keyspace {connection.keyspace} takes longer than {_ANSWER_WITHIN:.0f} s",
                remedy="wait: the attempt continues; or check the load of Cassandra",
            ) from error

    async def _apply_schema(self, connection: CassandraConnection) -> None:
        login, keyspace = await login_of(connection, self._secrets), connection.keyspace

        def create(place: CassandraPlace) -> None:
            session, strategy = place.table.session, connection.replication_class
            factor = connection.replication_factor
            create_schema(session, keyspace, new_replication(session, strategy=strategy, factor=factor))

        with translated(login, keyspace, CASSANDRA):
            await self._sessions.run(login, keyspace, create, namespace=connection.namespace)
        self._sessions.forget(login, keyspace)

    def _created(self, schema: _Schema, attempt: asyncio.Task[None]) -> None:
        del self._creating[schema]
        if not attempt.cancelled():
            attempt.exception()  # retrieved, because no caller may wait for it any more

    async def run(self, connection: CassandraConnection, work: Work[_T]) -> _T:
        """Do work in the connection's keyspace. Raises as the protocol says."""
        return await self._in_keyspace(connection, work)

    async def settings(self, connection: CassandraConnection, keyspaces: Sequence[str]) -> CassandraSettings:
        """Return how the cluster and these keyspaces are set; `commitlog_sync` is the asked node's."""
        return await self._in_keyspace(connection, lambda place: read_settings(place.table.session, keyspaces))

    async def _in_keyspace(self, connection: CassandraConnection, work: Callable[[CassandraPlace], _T]) -> _T:
        login, keyspace = await login_of(connection, self._secrets), connection.keyspace
        try:
            return await self._asked(connection, login, keyspace, work)
        except Denied:
            self._secrets.forget_secrets(connection.namespace)
            raise

    async def _asked(
        self, connection: CassandraConnection, login: Login, keyspace: str, work: Callable[[CassandraPlace], _T]
    ) -> _T:
        with translated(login, keyspace, CASSANDRA):
            try:
                async with asyncio.timeout(_ANSWER_WITHIN):
                    return await self._sessions.run(login, keyspace, work, namespace=connection.namespace)
            except TimeoutError as error:
                raise FenceUnavailable(f"no answer in {_ANSWER_WITHIN:.0f} s") from error


_Schema = tuple[frozenset[str], int, str]


def _schema(connection: CassandraConnection) -> _Schema:
    """Return what identifies a keyspace, whoever logs in."""
    return frozenset(connection.contact_points), connection.port, connection.keyspace


async def _succeeded(attempt: asyncio.Task[None]) -> bool:
    """Wait for an attempt of another pipeline, and return whether it succeeded."""
    await asyncio.wait({attempt})
    return not attempt.cancelled() and attempt.exception() is None
