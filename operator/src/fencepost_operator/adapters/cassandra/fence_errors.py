"""What the fence's errors mean to the operator, without the credentials in their texts."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

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
from fencepost_operator.adapters.cassandra.login import Login
from fencepost_operator.errors import Conflict, Denied, FencepostError, Rejected, Unreachable

log = logging.getLogger(__name__)


class SchemaMissing(Rejected):
    """The keyspace or the table does not exist, as Cassandra's own schema says."""


_CHECK: Final = "check that Cassandra runs and that the operator's namespace may reach it"


@contextmanager
def translated(login: Login, keyspace: str) -> Iterator[None]:  # noqa: C901 - one case a kind
    """Raise the fence's errors as the operator's: what happened at a login, and what to do about it."""
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
            remedy=f"check the Secret in checkpoint.cassandra.credentialsFrom and what {user} may do in {keyspace!r}",
        ) from error
    except (FenceEndpointInvalid, FenceSwapRefused) as error:
        raise Rejected(f"{login}: {login.without_credentials(str(error))}", remedy=error.remedy) from error
    except FenceUnavailable as error:
        raise Unreachable(f"{login}: {login.without_credentials(str(error))}", remedy=_CHECK) from error
    except FenceClockSkew as error:
        raise Rejected(f"{login}: {login.without_credentials(str(error))}", remedy=error.remedy) from error
    except FenceSchemaMissing as error:
        raise SchemaMissing(
            f"{login}: {login.without_credentials(str(error))}",
            remedy=f"create keyspace {keyspace!r} and its tables, or set checkpoint.cassandra.createSchema: true",
        ) from error
    except FenceRowInvalid as error:  # before FenceSchemaInvalid, of which it is one
        raise Rejected(
            f"{login}: {login.without_credentials(str(error))}",
            remedy=f"restore the column in table fence of keyspace {keyspace!r}; table fence_changes has what it held",
        ) from error
    except FenceSchemaInvalid as error:
        raise Rejected(
            f"{login}: {login.without_credentials(str(error))}",
            remedy=f"correct the table as docs/fence-schema.cql has it, with {keyspace!r} for the keyspace",
        ) from error
    except Exception as error:
        # The other side may be anything that a tenant names: what it sends must not end the operator's pass.
        log.exception("an answer that the Cassandra driver does not understand")
        raise Unreachable(
            f"{login}: an answer that is not understood ({login.without_credentials(repr(error))})", remedy=_CHECK
        ) from error
