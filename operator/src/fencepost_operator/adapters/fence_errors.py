"""What the fence's errors mean to the operator, without the credentials in their texts."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Final, Protocol

from fencepost.fence import (
    FenceClockSkew,
    FenceCredentialsRejected,
    Fenced,
    FenceEndpointInvalid,
    FenceMissing,
    FenceRowInvalid,
    FenceSchemaInvalid,
    FenceSchemaMissing,
    FenceSwapRefused,
    FenceUnavailable,
)
from fencepost_operator.errors import Conflict, Denied, FencepostError, Rejected, Unreachable

log = logging.getLogger(__name__)


class SchemaMissing(Rejected):
    """The keyspace, schema or table does not exist, as the database itself says."""


class Account(Protocol):
    """Who asks where; `str` names the server."""

    @property
    def credentials(self) -> tuple[str, str] | None:
        """The name and the password."""
        ...

    def without_credentials(self, text: str) -> str:
        """Return a text without them."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Words:
    """How one kind of database is named: its field of `spec.checkpoint`, and what its tables are in."""

    name: str
    field: str
    place: str
    schema: str
    """The file that creates the tables."""


CASSANDRA: Final = Words(
    name="Cassandra", field="checkpoint.cassandra", place="keyspace", schema="docs/fence-schema.cql"
)
POSTGRESQL: Final = Words(
    name="PostgreSQL", field="checkpoint.postgresql", place="schema", schema="docs/fence-schema.sql"
)


@contextmanager
def translated(login: Account, place: str, words: Words) -> Iterator[None]:  # noqa: C901 - one case a kind
    """Raise the fence's errors as the operator's: what happened at a login, and what to do about it.

    `place` is the keyspace or schema.
    """
    check = f"check that {words.name} runs and that the operator's namespace may reach it"
    try:
        yield
    except FencepostError:
        raise
    except (Fenced, FenceMissing) as error:
        raise Conflict(str(error)) from error
    except FenceCredentialsRejected as error:  # before FenceUnavailable: a missing permission is both
        user = "its user" if login.credentials else "an anonymous user"
        raise Denied(
            f"{login}: {login.without_credentials(str(error))}",
            remedy=f"check the Secret in {words.field}.credentialsFrom and what {user} may do in {place!r}",
        ) from error
    except (FenceEndpointInvalid, FenceSwapRefused) as error:
        raise Rejected(f"{login}: {login.without_credentials(str(error))}", remedy=error.remedy) from error
    except FenceUnavailable as error:
        raise Unreachable(f"{login}: {login.without_credentials(str(error))}", remedy=check) from error
    except FenceClockSkew as error:
        raise Rejected(f"{login}: {login.without_credentials(str(error))}", remedy=error.remedy) from error
    except FenceSchemaMissing as error:
        raise SchemaMissing(
            f"{login}: {login.without_credentials(str(error))}",
            remedy=f"create {words.place} {place!r} and its tables, or set {words.field}.createSchema: true",
        ) from error
    except FenceRowInvalid as error:  # before FenceSchemaInvalid, of which it is one
        raise Rejected(
            f"{login}: {login.without_credentials(str(error))}",
            remedy=f"restore the column in table fence of {words.place} {place!r}; fence_changes has what it held",
        ) from error
    except FenceSchemaInvalid as error:
        raise Rejected(
            f"{login}: {login.without_credentials(str(error))}",
            remedy=f"correct the table as {words.schema} has it, with {place!r} for the {words.place}",
        ) from error
    except Exception as error:
        # The other side may be anything that a tenant names: what it sends must not end the operator's pass.
        log.exception("an answer that the client of %s does not understand", words.name)
        raise Unreachable(
            f"{login}: an answer that is not understood ({login.without_credentials(repr(error))})", remedy=check
        ) from error
