"""What the driver writes about a record that it sets aside."""

from __future__ import annotations

import traceback
from dataclasses import dataclass

from fencepost.batch import Range, Record
from fencepost.contract import DriverConfig
from fencepost.driver.fence_store import FenceStore
from fencepost.errors import DriverError
from fencepost.fence import FenceRow
from fencepost.fence.letters import letter


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredLetters:
    """Dead letters beside the fence. `retention` is in seconds."""

    store: FenceStore
    code: str
    retention: float

    def write(self, record: Record, part: Range, error: DriverError, row: FenceRow) -> None:
        """Store a record and why it fails, as of the batch after `row`. Raises FenceError."""
        one = letter(
            topic=part.topic,
            partition=part.partition,
            topic_id=row.topic_ids.get(part.topic, ""),
            offset=record.offset,
            epoch=row.epoch,
            code=self.code,
            reason=error.reason,
            error=error.message,
            traceback="".join(traceback.format_exception(error.__cause__ or error, chain=False)),
            timestamp=record.timestamp,
            key=record.key,
            value=record.value,
            headers=record.headers,
        )
        self.store.write_letter(one, row, retention=self.retention)


def stored_letters(config: DriverConfig, store: FenceStore) -> StoredLetters | None:
    """Return where a run sets records aside, None for one that ends at a record that fails alone."""
    if config.dead_letter_retention is None:
        return None
    return StoredLetters(store=store, code=config.code, retention=config.dead_letter_retention)


def remove_uncommitted(row: FenceRow, store: FenceStore) -> None:
    """Remove the letters of what a run reads again, after it has claimed `row` and before it writes. Raises FenceError.

    A run that died between a letter and its commit left one, and so did each letter that a rewind goes back behind.
    Whatever the run does with these records now, it writes them or sets them aside, and not both.
    """
    store.remove_letters(row)
