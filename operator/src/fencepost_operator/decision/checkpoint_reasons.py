"""The reasons for a fence that cannot be read or changed, by the database that the pipeline names for it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from fencepost_operator.api import Pipeline, Reason
from fencepost_operator.observation import UnknownReason

_OF_CASSANDRA: Final = {
    UnknownReason.UNREACHABLE: Reason.CASSANDRA_UNREACHABLE,
    UnknownReason.DENIED: Reason.CASSANDRA_CREDENTIALS_REJECTED,
    UnknownReason.REJECTED: Reason.CASSANDRA_REJECTED,
    UnknownReason.BUSY: Reason.OPERATOR_BUSY,
}
_OF_POSTGRESQL: Final = {
    UnknownReason.UNREACHABLE: Reason.POSTGRESQL_UNREACHABLE,
    UnknownReason.DENIED: Reason.POSTGRESQL_CREDENTIALS_REJECTED,
    UnknownReason.REJECTED: Reason.POSTGRESQL_REJECTED,
    UnknownReason.BUSY: Reason.OPERATOR_BUSY,
}


def checkpoint_reasons(pipeline: Pipeline) -> Mapping[UnknownReason, Reason]:
    """Return the reason for each way in which the fence does not answer.

    A queue of the operator's does not count as an outage.
    """
    found = pipeline.checkpoint
    return _OF_POSTGRESQL if found is not None and found.postgresql is not None else _OF_CASSANDRA


def database_name(pipeline: Pipeline) -> str:
    """Return what the database of the fence is called in a message."""
    return "PostgreSQL" if checkpoint_reasons(pipeline) is _OF_POSTGRESQL else "Cassandra"
