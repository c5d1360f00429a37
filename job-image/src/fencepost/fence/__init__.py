"""The fence: the protocol, and its tables in Cassandra and in memory."""

from fencepost.fence.batch_progress import BatchProgress, heartbeat_key
from fencepost.fence.errors import (
    FenceClockSkew,
    FenceCredentialsRejected,
    Fenced,
    FenceDatacenterUnknown,
    FenceEndpointInvalid,
    FenceError,
    FenceMissing,
    FenceRowInvalid,
    FenceSchemaInvalid,
    FenceSchemaMissing,
    FenceSwapRefused,
    FenceTlsFailed,
    FenceUnauthorized,
    FenceUnavailable,
)
from fencepost.fence.protocol import Fence, Starting, open_to
from fencepost.fence.row import EMPTY, KNOWN_GROWTHS, FenceRow
from fencepost.fence.table import FenceTable

__all__ = [
    "EMPTY",
    "KNOWN_GROWTHS",
    "BatchProgress",
    "Fence",
    "FenceClockSkew",
    "FenceCredentialsRejected",
    "FenceDatacenterUnknown",
    "FenceEndpointInvalid",
    "FenceError",
    "FenceMissing",
    "FenceRow",
    "FenceRowInvalid",
    "FenceSchemaInvalid",
    "FenceSchemaMissing",
    "FenceSwapRefused",
    "FenceTable",
    "FenceTlsFailed",
    "FenceUnauthorized",
    "FenceUnavailable",
    "Fenced",
    "Starting",
    "heartbeat_key",
    "open_to",
]
