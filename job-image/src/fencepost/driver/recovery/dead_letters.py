"""What the driver writes about a record that it sets aside."""

from __future__ import annotations

import traceback
from dataclasses import dataclass

from cassandra.cluster import Session

from fencepost.batch import Range, Record
from fencepost.contract import DriverConfig
from fencepost.errors import DriverError
from fencepost.fence import FenceRow
from fencepost.fence.cassandra.dead_letters import DeadLetters, letter


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredLetters:
    """Dead letters in the fence's keyspace. `retention` and `patience` are in seconds."""

    table: DeadLetters
    code: str
    retention: float
    consistency: str
    patience: float

    def write(self, record: Record, part: Range, error: DriverError, row: FenceRow) -> None:
        """Store a record and why it fails, at the batch's write timestamp. Raises FenceError."""
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
        self.table.write(
            one,
            write_timestamp=row.write_timestamp,
            retention=self.retention,
            consistency=self.consistency,
            patience=self.patience,
        )


def stored_letters(config: DriverConfig, session: Session) -> StoredLetters | None:
    """Return where a run sets records aside, None for one that ends at a record that fails alone."""
    if config.dead_letter_retention is None:
        return None
    return StoredLetters(
        table=DeadLetters(session, config.fence_keyspace, config.pipeline),
        code=config.code,
        retention=config.dead_letter_retention,
        consistency=config.consistency,
        patience=config.patience,
    )


def remove_uncommitted(row: FenceRow, config: DriverConfig, session: Session) -> None:
    """Remove the letters of what a run reads again, after it has claimed `row` and before it writes. Raises FenceError.

    A run that died between a letter and its commit left one, and so did each letter that a rewind goes back behind.
    Whatever the run does with these records now, it writes them or sets them aside, and not both.
    """
    DeadLetters(session, config.fence_keyspace, config.pipeline).remove_from(
        row.offsets,
        row.topic_ids,
        # After each timestamp of an earlier epoch, and before each of this one.
        write_timestamp=row.clock,
        consistency=config.consistency,
        patience=config.patience,
    )
