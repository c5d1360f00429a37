"""How large a record is that alone does not fit into memory, for the verdict."""

from __future__ import annotations

import logging
from typing import Protocol

from fencepost.batch import Batch, Range, Record
from fencepost.contract import record_place
from fencepost.errors import OutOfMemory

log = logging.getLogger(__name__)


class Records(Protocol):
    """Reads single records."""

    def first(self, part: Range) -> Record | None:
        """Return the first record of a range, None when it has none. Raises DriverError."""


def with_size(error: OutOfMemory, batch: Batch, records: Records) -> OutOfMemory:
    """Return the error with the place and the bytes of the record, where the batch is one; else as it is.

    The tasks that read it died before they could report it.
    """
    if batch.records != 1:
        return error
    (part,) = batch.ranges
    try:
        found = records.first(part)
    except Exception as problem:  # noqa: BLE001 - the run ends for `error`, whatever else fails
        log.warning("the record that does not fit into memory cannot be measured: %s", problem)
        return error
    if found is None:
        return error
    return OutOfMemory(
        f"the batch is one record of {size_of(found)} bytes, {record_place(part.key, part.start)}: {error.message}",
        reason=error.reason,
        remedy=error.remedy,
    )


def size_of(record: Record) -> int:
    """Return the bytes of a record's key, value and headers."""
    headers = sum(len(key.encode()) + len(value or b"") for key, value in record.headers)
    return len(record.key or b"") + len(record.value or b"") + headers
