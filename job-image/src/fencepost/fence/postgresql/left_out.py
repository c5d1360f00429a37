"""The records that users let a pipeline leave out: rows of `left_out_records`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from types import SimpleNamespace
from typing import Final

from fencepost.fence.errors import FenceRowInvalid
from fencepost.fence.left_out import MOST, LeftOut, by_partition
from fencepost.fence.postgresql.schema import name_of
from fencepost.fence.postgresql.session import Session
from fencepost.fence.postgresql.table import named

_COLUMNS: Final = ("topic", "partition", "topic_id", "offset", "leader_epoch", "left_out_by", "at")
_NAMES: Final = ", ".join(f'"{name}"' for name in _COLUMNS)


class LeftOutRecords:
    """Those of one pipeline. Methods raise FenceError."""

    def __init__(self, session: Session, schema: str, pipeline: str) -> None:
        self._session = session
        self._pipeline = pipeline
        self._table = name_of(schema, "left_out_records")

    def add(self, record: LeftOut) -> None:
        """Record one; done twice, it is done once."""
        self._session.run(
            "leaving out a record",
            f"INSERT INTO {self._table} (pipeline, {_NAMES}) VALUES (%s, %s, %s, %s, %s, %s, %s, %s)"
            " ON CONFLICT DO NOTHING",
            (
                self._pipeline, record.topic, record.partition, record.topic_id, record.offset, record.leader_epoch,
                record.by, record.at,
            ),
        )  # fmt: skip

    def all(self) -> Sequence[LeftOut]:
        """Return them by place, of all topics."""
        found = self._session.run(
            "reading which records are left out",
            f"SELECT {_NAMES} FROM {self._table} WHERE pipeline = %s"
            f' ORDER BY topic, partition, topic_id, "offset", leader_epoch LIMIT {MOST}',
            (self._pipeline,),
        )
        return [_record(named(_COLUMNS, row)) for row in found[:MOST]]

    def of_topics(self, topic_ids: Mapping[str, str]) -> Mapping[str, frozenset[tuple[int, int]]]:
        """Return offsets and leader epochs by 'topic/partition', of topics with these ids."""
        return by_partition(self.all(), topic_ids)


def _record(row: SimpleNamespace) -> LeftOut:
    texts = (row.topic, row.topic_id, row.left_out_by)
    numbers = (row.partition, row.offset, row.leader_epoch)
    is_right = all(isinstance(one, str) for one in texts) and all(isinstance(one, int) for one in numbers)
    if not is_right or not isinstance(row.at, datetime):
        raise FenceRowInvalid("a record that is left out has other values than were written")
    return LeftOut(
        topic=row.topic,
        partition=row.partition,
        offset=row.offset,
        topic_id=row.topic_id,
        leader_epoch=row.leader_epoch,
        by=row.left_out_by,
        at=row.at,
    )
