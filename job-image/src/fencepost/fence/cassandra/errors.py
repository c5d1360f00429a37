"""What the Cassandra driver raises, as the fence's errors: anything but a refusal leaves the outcome unknown."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Final

from cassandra import AuthenticationFailed, DriverException, InvalidRequest, Unauthorized
from cassandra.cluster import NoHostAvailable
from cassandra.connection import ConnectionException
from cassandra.protocol import ConfigurationException, ErrorMessage

from fencepost.fence.cassandra.tls import tls_failure
from fencepost.fence.errors import (
    FenceCredentialsRejected,
    FenceSchemaInvalid,
    FenceUnauthorized,
    FenceUnavailable,
)

UNANSWERED: Final = (DriverException, NoHostAvailable, ConnectionException, ErrorMessage)
"""What the driver raises for a request whose outcome is open; catch its refusals first, they are DriverExceptions too.

ConnectionException: the connection died in flight.  ErrorMessage: an answer that the driver has no exception for, as
overloaded, bootstrapping, server error and CAS_WRITE_UNKNOWN.
"""
_DISK_FULL: Final = 'Error from server: code=2200 [Invalid query] message="Guardrail replica_disk_usage violated: '
"""How the driver quotes the guardrail for full disks, in the words of Cassandra 4.1 and 5.0.

Source: `Guardrail.decorateMessage` and the name that `Guardrails.replicaDiskUsage` has.
"""


def is_disk_full(error: InvalidRequest) -> bool:
    """Return whether a write is refused for a replica's full disk: an outage, though it reads as a wrong request.

    Compared from the start: the texts of other refusals quote names and values of a pipeline's author.
    """
    return str(error).startswith(_DISK_FULL)


@contextmanager
def translated(doing: str) -> Iterator[None]:
    """Turn the driver's errors into the fence's; anything but a refusal is an unknown outcome."""
    try:
        yield
    except AuthenticationFailed as error:
        raise FenceCredentialsRejected(f"{doing}: {error}") from error
    except Unauthorized as error:
        raise FenceUnauthorized(f"{doing}: {error}") from error
    except (InvalidRequest, ConfigurationException) as error:
        if isinstance(error, InvalidRequest) and is_disk_full(error):
            raise FenceUnavailable(f"{doing}: {error}") from error
        raise FenceSchemaInvalid(f"{doing}: {error}") from error
    except NoHostAvailable as error:
        causes = tuple(error.errors.values()) if isinstance(error.errors, Mapping) else tuple(error.errors)
        if any(isinstance(cause, AuthenticationFailed) for cause in causes):
            raise FenceCredentialsRejected(f"{doing}: {causes[0]}") from error
        if failed := tls_failure(doing, causes):
            raise failed from error
        raise FenceUnavailable(f"{doing}: {error}") from error
    except (*UNANSWERED, OSError) as error:
        raise FenceUnavailable(f"{doing}: {error}") from error
