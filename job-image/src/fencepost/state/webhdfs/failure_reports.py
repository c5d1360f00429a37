"""Why a data service could not serve a request, as it reports it to the name service.

Spark knows a request that failed as the text of a Java exception, and the data service is another process: without the
report an outage of Cassandra would look like any batch that fails.
"""

from __future__ import annotations

from typing import Final

from fencepost.fence import errors
from fencepost.state.errors import CheckpointDamaged, CheckpointFull
from fencepost.state.webhdfs.authentication import FailedTicket, TicketExpired

REPORTED: Final = (errors.FenceError, CheckpointDamaged, CheckpointFull)
"""What ends a run for a reason of its own; the other errors answer what Spark asked."""
LONGEST: Final = 500
"""Characters of a message: it is sent in a URL."""

_KINDS: Final[dict[str, type[Exception]]] = {
    kind.__name__: kind
    for kind in (
        CheckpointDamaged,
        CheckpointFull,
        errors.FenceCredentialsRejected,
        errors.FenceEndpointInvalid,
        errors.FenceError,
        errors.FenceSchemaInvalid,
        errors.FenceSchemaMissing,
        errors.FenceUnauthorized,
        errors.FenceUnavailable,
        TicketExpired,
    )
}


def ticket_of(error: Exception) -> FailedTicket:
    """Return one of REPORTED as a ticket: its class, or the nearest base class that the name service knows."""
    kind = next(kind.__name__ for kind in type(error).__mro__ if kind.__name__ in _KINDS)
    return FailedTicket(error=kind, message=str(error)[:LONGEST])


def error_of(ticket: FailedTicket) -> Exception:
    """Return the error that a data service reported."""
    return _KINDS.get(ticket.error, errors.FenceError)(ticket.message)
