"""Fencepost for authors: what a transform receives, and the errors that it may raise. Imports without Spark.

A transform raises PoisonRecord for a record that it cannot process, BadSpec when its arguments or its environment
cannot work, DependencyDown when a service of its own does not answer. Each names a remedy. Any other exception ends the
run as well, and is retried with backoff.
"""

from __future__ import annotations

from fencepost.context import BatchContext, RecordContext, StreamContext, record_batches
from fencepost.errors import BadSpec, DependencyDown, DriverError, PoisonRecord

__all__ = [
    "BadSpec",
    "BatchContext",
    "DependencyDown",
    "DriverError",
    "PoisonRecord",
    "RecordContext",
    "StreamContext",
    "record_batches",
]
