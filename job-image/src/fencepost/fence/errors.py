"""Errors of the fence.

FenceError
├── FenceUnavailable         no answer for as long as `patience`: the outcome is not known
├── FenceCredentialsRejected the database refused the user
│   └── FenceUnauthorized    or a permission: it may be temporary, so it is also a FenceUnavailable and tried again
├── FenceEndpointInvalid     no connection, for a reason that a user must correct
│   ├── FenceTlsFailed           the TLS handshake failed, or what it needs cannot be read
│   └── FenceDatacenterUnknown   no node is in the local datacenter, so that none may be asked
├── FenceSchemaMissing       the keyspace or the table does not exist, as Cassandra's schema says
├── FenceSchemaInvalid       the table is of another shape, or the request was refused
│   └── FenceRowInvalid      the table is right, and the row holds values that the fence never writes
├── FenceMissing             the row does not exist
├── FenceSwapRefused         the store refuses a change whose condition holds
├── FenceClockSkew           a write timestamp would be minutes ahead of the database's time
└── Fenced                   another owner holds the row: stop at once
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from fencepost.fence.row import FenceRow


class FenceError(Exception):
    """Base of the fence's errors."""


class FenceUnavailable(FenceError):
    """The database gave no answer in time; whether the last change was applied is not known."""


class FenceCredentialsRejected(FenceError):
    """The database refused the credentials, or the permission for the statement."""


class FenceUnauthorized(FenceCredentialsRejected, FenceUnavailable):
    """The account lacks a permission, or no replica of the permissions answers: Cassandra does not say which.

    The statement was not applied.  It is tried again like one without an answer.
    """


class FenceEndpointInvalid(FenceError):
    """The connection failed, and waiting does not help; nothing was sent. `remedy` says what to do."""

    def __init__(self, message: str, *, remedy: str = "") -> None:
        super().__init__(message)
        self.remedy = remedy


class FenceTlsFailed(FenceEndpointInvalid):
    """The TLS handshake failed because of a certificate or a key, or these cannot be read."""


class FenceDatacenterUnknown(FenceEndpointInvalid):
    """The cluster has no node in the local datacenter, as a node that answers says."""


class FenceSchemaMissing(FenceError):
    """The fence's keyspace or table does not exist: a read of Cassandra's schema says so."""


class FenceSchemaInvalid(FenceError):
    """The request does not fit the table as it is: a column is missing or of another type. Nothing was changed."""


class FenceRowInvalid(FenceSchemaInvalid):
    """The row has a value that the fence never writes, as after an UPDATE by hand. The message names the column."""


class FenceMissing(FenceError):
    """The pipeline has no fence row."""


class FenceSwapRefused(FenceError):
    """The store refuses each try of a change, and the row reads as the change expects it. Nothing was changed."""

    remedy = (
        "Try the store with `fencepost certify`: it must apply a conditional update whose condition holds, also where"
        " that compares with null (docs/stores.md)."
    )


class FenceClockSkew(FenceError):
    """The change was refused: this node's clock is too far from the database's, or the row's too far ahead of it.

    `remedy` says what to do.
    """

    def __init__(self, message: str, *, remedy: str) -> None:
        super().__init__(message)
        self.remedy = remedy


class Fenced(FenceError):
    """The row has moved on: another run or another pod holds it. `seen` is the row as it is now."""

    def __init__(self, message: str, *, seen: FenceRow | None) -> None:
        super().__init__(message)
        self.seen = seen
