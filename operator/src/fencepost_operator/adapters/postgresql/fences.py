"""The fences in PostgreSQL, on sessions that one tenant cannot use up for another."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Final, TypeVar

import psycopg

from fencepost.fence import FenceUnavailable
from fencepost.fence.history import Change
from fencepost.fence.postgresql.history import changes_after
from fencepost.fence.postgresql.schema import create_schema
from fencepost.fence.postgresql.snapshots import SnapshotTable
from fencepost.fence.postgresql.table import PostgresqlFenceTable
from fencepost.state.state_check import StateCheck
from fencepost_operator.adapters.fence_errors import POSTGRESQL, translated
from fencepost_operator.adapters.fence_sessions import Client, Limits, Sessions
from fencepost_operator.adapters.fence_store import Work
from fencepost_operator.adapters.postgresql.login import NONE_ANSWERS, BoundedSession, Login, login_of
from fencepost_operator.api import PostgresqlConnection
from fencepost_operator.endpoints import EndpointPolicy
from fencepost_operator.errors import Denied, Rejected
from fencepost_operator.ports import SecretReader

log = logging.getLogger(__name__)

_T = TypeVar("_T")
_ANSWER_WITHIN: Final = 40.0
_SCHEMAS: Final = 1000
"""How many schemas are remembered as complete."""
_CONNECTION_LOST: Final = ("08", "57")
"""Classes of SQLSTATE that end the connection."""


@dataclass(frozen=True, slots=True)
class PostgresqlPlace:
    """A schema."""

    table: PostgresqlFenceTable
    changes_at_once: int = 50
    """A change of a thousand partitions has 0.05 MB."""

    @property
    def snapshots(self) -> SnapshotTable:
        """The snapshots."""
        return SnapshotTable(self.table.session, self.table.schema)

    def changes_after(self, pipeline: str, hour: datetime, *, epoch: int, version: int, limit: int) -> Sequence[Change]:
        """Return the first changes of an hour that came after this one."""
        place = self.table.session, self.table.schema
        return changes_after(*place, pipeline, hour, epoch=epoch, version=version, limit=limit)

    def check_state(self, pipeline: str, checkpoint: bytes, *, start: int) -> StateCheck:
        """Return that files are missing: none is ever here."""
        del pipeline, checkpoint
        return StateCheck(files=start, checked=start, missing="a state, which PostgreSQL does not keep")

    def forget_state(self, pipeline: str) -> None:
        """Return: no state is here."""


def _is_answer(cause: BaseException | None) -> bool:
    state = cause.sqlstate if isinstance(cause, psycopg.Error) else None
    return state is not None and not state.startswith(_CONNECTION_LOST)


def _place(session: BoundedSession, schema: str) -> PostgresqlPlace:
    return PostgresqlPlace(PostgresqlFenceTable(session, schema))


CLIENT: Final = Client(
    name="PostgreSQL",
    place=_place,
    end=lambda session: session.close(),
    none_answers=NONE_ANSWERS,
    is_answer=_is_answer,
    turns=1,
)


class PostgresqlFences:
    """Those of all servers; `close` ends all sessions."""

    def __init__(
        self, secrets: SecretReader, limits: Limits | None = None, *, policy: EndpointPolicy | None = None
    ) -> None:
        self._secrets = secrets
        self._sessions: Sessions[Login, BoundedSession, PostgresqlPlace] = Sessions(CLIENT, limits, policy=policy)
        self._current: set[_Schema] = set()

    async def run(self, connection: PostgresqlConnection, work: Work[_T]) -> _T:
        """Do work in the connection's schema. Raises as the protocol says."""
        return await self._in_schema(connection, work)

    async def migrate(self, connection: PostgresqlConnection) -> None:
        """Add the tables that are missing; without the right to do so those are used that are there."""
        schema = connection.endpoint, connection.schema
        if not connection.create_schema or schema in self._current:
            return
        try:
            await self.create_schema(connection)
        except (Denied, Rejected) as error:
            log.warning("schema %s keeps its tables: %s", connection.schema, error)
            return
        if len(self._current) >= _SCHEMAS:
            self._current.clear()
        self._current.add(schema)

    async def create_schema(self, connection: PostgresqlConnection) -> None:
        """Create what is missing, in one transaction; PostgreSQL lets one session at a time do so."""
        await self._in_schema(connection, lambda place: create_schema(place.table.session, connection.schema))

    async def close(self) -> None:
        """End all sessions."""
        await self._sessions.close()

    async def _in_schema(self, connection: PostgresqlConnection, work: Callable[[PostgresqlPlace], _T]) -> _T:
        login, schema = await login_of(connection, self._secrets), connection.schema
        try:
            return await self._asked(connection, login, schema, work)
        except Denied:
            self._secrets.forget_secrets(connection.namespace)
            raise

    async def _asked(
        self, connection: PostgresqlConnection, login: Login, schema: str, work: Callable[[PostgresqlPlace], _T]
    ) -> _T:
        with translated(login, schema, POSTGRESQL):
            try:
                async with asyncio.timeout(_ANSWER_WITHIN):
                    return await self._sessions.run(login, schema, work, namespace=connection.namespace)
            except TimeoutError as error:
                raise FenceUnavailable(f"no answer in {_ANSWER_WITHIN:.0f} s") from error


_Schema = tuple[object, str]
