"""Which PostgreSQL a pipeline names, and as whom the operator connects to it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from fencepost.contract import PostgresqlEndpoint
from fencepost.fence import FenceRowInvalid, FenceUnavailable
from fencepost.fence.postgresql.session import Connection, Session
from fencepost.fence.tls import TlsMaterial
from fencepost_operator.adapters.fence_logins import credentials_of, tls_of, without
from fencepost_operator.adapters.postgresql.relay import LARGEST_ANSWER, relayed
from fencepost_operator.api import PostgresqlConnection
from fencepost_operator.endpoints import EndpointPolicy
from fencepost_operator.ports import SecretReader

NONE_ANSWERS: Final = (
    "spec.checkpoint.postgresql.hosts: no host answers that is one of the operator's allowedEndpoints and takes writes"
)
"""Said of whatever is or is not at an address that is not allowed, and of one that is allowed and does not answer."""


class BoundedSession(Session):
    """Dials addresses that the policy allows, and reads bounded answers.

    With a policy that restricts, the error does not depend on what is there: it would show a tenant the network.
    """

    def __init__(
        self,
        endpoint: PostgresqlEndpoint,
        policy: EndpointPolicy,
        *,
        credentials: tuple[str, str],
        tls: TlsMaterial | None,
    ) -> None:
        self._policy = policy
        self._is_too_large = False
        super().__init__(endpoint, credentials=credentials, tls=tls, reach=self._reached)

    def run(
        self, doing: str, statement: str, values: Sequence[object] = (), *, limit: float | None = None
    ) -> list[tuple[Any, ...]]:
        """Run a statement; an answer that is too large is one that no table of the fence has. Raises FenceError."""
        try:
            return super().run(doing, statement, values, limit=limit)
        except FenceUnavailable as error:
            if not self._is_too_large:
                raise
            self._is_too_large = False
            most = f"{LARGEST_ANSWER // 1024 // 1024} MiB"
            raise FenceRowInvalid(f"{doing}: the answer has more than {most}, as no row of the fence has") from error

    def connect(self) -> Connection:
        """Connect. Raises FenceError."""
        self._is_too_large = False
        try:
            return super().connect()
        except FenceUnavailable:
            if not self._policy.restricts:
                raise
            raise FenceUnavailable(NONE_ANSWERS) from None

    def _reached(self, name: str, address: str, port: int) -> tuple[str, int]:
        if not self._policy.allows(name, address, port):
            raise PermissionError(f"{address} may not be dialled")
        return relayed(address, port, too_large=self._note_too_large)

    def _note_too_large(self) -> None:
        self._is_too_large = True


@dataclass(frozen=True, slots=True)
class Login:
    """What makes two sessions the same."""

    endpoint: PostgresqlEndpoint
    credentials: tuple[str, str] | None = field(repr=False)
    tls: TlsMaterial | None = field(default=None, repr=False)

    def __str__(self) -> str:
        return f"PostgreSQL at {self.endpoint.address}"

    @property
    def address(self) -> tuple[frozenset[str], int]:
        """What identifies the servers, whoever logs in."""
        return frozenset(self.endpoint.hosts), self.endpoint.port

    def without_credentials(self, text: str) -> str:
        """Return a text of libpq's or of the server's without the name and password in it."""
        return without(self.credentials, text)

    def open(self, policy: EndpointPolicy) -> BoundedSession:
        """Connect to addresses that the policy allows. Raises FenceError."""
        session = BoundedSession(self.endpoint, policy, credentials=self.credentials or ("", ""), tls=self.tls)
        session.open()
        return session


async def login_of(connection: PostgresqlConnection, secrets: SecretReader) -> Login:
    """Return the login with what its Secrets hold. Raises Rejected, naming the key."""
    return Login(
        endpoint=connection.endpoint,
        credentials=await credentials_of(connection, secrets),
        tls=await tls_of(connection, secrets),
    )
