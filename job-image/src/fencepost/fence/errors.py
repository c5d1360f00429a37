"""Errors of the fence.

FenceError
├── FenceUnavailable         no answer for as long as `patience`: the outcome is not known
│   └── FenceUnauthorized    the user may not run the statement, which a node that starts says for a moment too
├── FenceCredentialsRejected the database refused the user
├── FenceSchemaMissing       the keyspace or the table does not exist
├── FenceSchemaInvalid       the table exists and has other columns
├── FenceMissing             the row does not exist
├── FenceClockSkew           a write timestamp would be minutes ahead of the database's time
└── Fenced                   somebody else holds the row: stop at once
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from fencepost.fence.protocol import FenceRow


class FenceError(Exception):
    """Base of the fence's errors."""


class FenceUnavailable(FenceError):
    """The database gave no answer in time; whether the last change was applied is not known."""


class FenceUnauthorized(FenceUnavailable):
    """The user may not run the statement; tried again for the patience, because a starting node answers so too."""


class FenceCredentialsRejected(FenceError):
    """The database refused the credentials."""


class FenceSchemaMissing(FenceError):
    """The fence's keyspace or table does not exist."""


class FenceSchemaInvalid(FenceError):
    """The fence's table exists, and it does not have the columns that this release needs."""


class FenceMissing(FenceError):
    """The pipeline has no fence row."""


class FenceClockSkew(FenceError):
    """The change was refused: its timestamp is too far ahead of the database's time. `remedy` says what to do."""

    def __init__(self, message: str, *, remedy: str) -> None:
        super().__init__(message)
        self.remedy = remedy


class Fenced(FenceError):
    """The row has moved on: another run or another pod holds it. `seen` is the row as it is now."""

    def __init__(self, message: str, *, seen: FenceRow | None) -> None:
        super().__init__(message)
        self.seen = seen
