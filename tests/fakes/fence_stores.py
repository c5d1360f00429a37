"""The operator's store of fences on Cassandra alone."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NoReturn

from fencepost_operator.adapters.cassandra.fences import CassandraFences
from fencepost_operator.adapters.fence_sessions import Limits, Sessions
from fencepost_operator.adapters.fence_store import DatabaseFenceStore, Work
from fencepost_operator.api import FenceConnection
from fencepost_operator.endpoints import EndpointPolicy
from fencepost_operator.ports import SecretReader


class NoFences:
    """Those in a database that no pipeline of a test names."""

    async def run(self, connection: FenceConnection, work: Work[Any]) -> NoReturn:
        del work
        raise AssertionError(f"{connection} is asked")

    async def migrate(self, connection: FenceConnection) -> NoReturn:
        raise AssertionError(f"{connection} is asked")

    create_schema = migrate

    async def settings(self, connection: FenceConnection, keyspaces: Sequence[str]) -> NoReturn:
        raise AssertionError(f"{connection} is asked of {keyspaces}")

    async def close(self) -> None:
        """Nothing is open."""


class CassandraFenceStore(DatabaseFenceStore):
    """The store, with the sessions for tests to look into."""

    def __init__(
        self, secrets: SecretReader, limits: Limits | None = None, *, policy: EndpointPolicy | None = None
    ) -> None:
        found = CassandraFences(secrets, limits, policy=policy)
        super().__init__(cassandra=found, postgresql=NoFences())
        object.__setattr__(self, "fences", found)

    fences: CassandraFences

    @property
    def _sessions(self) -> Sessions[Any, Any, Any]:
        return self.fences._sessions

    @property
    def _creating(self) -> dict[Any, Any]:
        return self.fences._creating
