"""The fence: the protocol, and its tables in Cassandra and in memory."""

from fencepost.fence.protocol import (
    Fence,
    FenceCredentialsRejected,
    Fenced,
    FenceError,
    FenceMissing,
    FenceRow,
    FenceSchemaMissing,
    FenceTable,
    FenceUnavailable,
    Starting,
    open_to,
)

__all__ = [
    "Fence",
    "FenceCredentialsRejected",
    "FenceError",
    "FenceMissing",
    "FenceRow",
    "FenceSchemaMissing",
    "FenceTable",
    "FenceUnavailable",
    "Fenced",
    "Starting",
    "open_to",
]
