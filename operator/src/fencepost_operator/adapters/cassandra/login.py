"""Which Cassandra a pipeline names, and as whom the operator connects to it."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final

from cassandra.cluster import Session

from fencepost.contract import CassandraEndpoint
from fencepost.fence import FenceUnavailable
from fencepost.fence.cassandra.session import connect
from fencepost.fence.tls import TlsMaterial
from fencepost_operator.adapters.cassandra.guarded_connection import BoundedConnection
from fencepost_operator.adapters.fence_logins import credentials_of, tls_of, without
from fencepost_operator.api import CassandraConnection
from fencepost_operator.endpoints import EndpointPolicy
from fencepost_operator.ports import SecretReader

NONE_ANSWERS: Final = (
    "spec.checkpoint.cassandra.contactPoints: no contact point answers that is one of the operator's allowedEndpoints"
)
"""Said of whatever is or is not at an address that is not allowed, and of one that is allowed and does not answer."""


@dataclass(frozen=True, slots=True)
class Login:
    """What makes two sessions the same."""

    endpoint: CassandraEndpoint
    consistency: str
    credentials: tuple[str, str] | None = field(repr=False)
    tls: TlsMaterial | None = field(default=None, repr=False)

    def __str__(self) -> str:
        return f"Cassandra at {self.endpoint.address}"

    @property
    def address(self) -> tuple[frozenset[str], int]:
        """What identifies the cluster, whoever logs in."""
        return frozenset(self.endpoint.contact_points), self.endpoint.port

    def without_credentials(self, text: str) -> str:
        """Return a text of the driver's or of Cassandra's without the name and password in it."""
        return without(self.credentials, text)

    def open(self, policy: EndpointPolicy) -> Session:
        """Connect to addresses that the policy allows. Raises FenceError.

        With a policy that restricts, the error does not depend on what is there: it would show a tenant the network.
        Only the answers of a Cassandra at an allowed address are reported, such as refused credentials.
        """
        try:
            return connect(
                self.endpoint,
                credentials=self.credentials,
                consistency=self.consistency,
                discover=False,
                connection_class=BoundedConnection,
                permits=lambda name, address: policy.allows(name, address, self.endpoint.port),
                tls=self.tls,
            )
        except FenceUnavailable:
            if not policy.restricts:
                raise
            raise FenceUnavailable(NONE_ANSWERS) from None


async def login_of(connection: CassandraConnection, secrets: SecretReader) -> Login:
    """Return the login with what its Secrets hold. Raises Rejected, naming the key."""
    return Login(
        endpoint=connection.endpoint,
        consistency=connection.consistency,
        credentials=await credentials_of(connection, secrets),
        tls=await tls_of(connection, secrets),
    )
