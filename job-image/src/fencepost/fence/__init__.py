"""The fence: the protocol, and its tables in Cassandra and in memory."""

from fencepost.fence.progress import BatchProgress
from fencepost.fence.protocol import (
    Fence,
    FenceCredentialsRejected,
    Fenced,
    FenceError,
    FenceMissing,
    FenceRow,
    FenceSchemaInvalid,
    FenceSchemaMissing,
    FenceTable,
    FenceUnauthorized,
    FenceUnavailable,
    Starting,
    open_to,
)

__all__ = [
    "BatchProgress",
    "Fence",
    "FenceCredentialsRejected",
    "FenceError",
    "FenceMissing",
    "FenceRow",
    "FenceSchemaInvalid",
    "FenceSchemaMissing",
    "FenceTable",
    "FenceUnauthorized",
    "FenceUnavailable",
    "Fenced",
    "Starting",
    "open_to",
]
