"""Dead letters in PostgreSQL.

A letter is written only while its epoch is the fence row's, and so are letters removed: the statement locks the row
against a takeover.  A driver that was replaced writes and removes none late.  The table of the fence deletes those that
have expired.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime, timedelta
from itertools import islice
from typing import Any, Final

from fencepost.contract import split_offset_key
from fencepost.fence.errors import FenceRowInvalid
from fencepost.fence.letters import TYPES, DeadLetter, checked
from fencepost.fence.postgresql.schema import name_of
from fencepost.fence.postgresql.session import Session
from fencepost.fence.postgresql.table import named

PAGE: Final = 50
"""Letters that one request reads, without their records: with errors of the greatest length 1 MiB."""
_LARGEST: Final = 2**63 - 1
_RECORD: Final = frozenset({"key", "value", "headers", "traceback"})
_COLUMNS: Final = tuple(TYPES)
_LISTED: Final = tuple(name for name in _COLUMNS if name not in _RECORD)
_PLACE: Final = 'pipeline = %s AND topic = %s AND partition = %s AND topic_id = %s AND "offset" = %s'
_LIVES: Final = "expires_at > clock_timestamp()"


class DeadLetters:
    """The letters of one pipeline. Methods raise FenceError."""

    def __init__(self, session: Session, schema: str, pipeline: str) -> None:
        self._session = session
        self._pipeline = pipeline
        self._table = name_of(schema, "dead_letters")
        self._fence = name_of(schema, "fence")

    def write(self, one: DeadLetter, *, retention: float) -> bool:
        """Write a letter, to expire after `retention` seconds; one at its place is replaced.

        Returns whether the letter's epoch is that of the fence row: nothing is written otherwise.
        """
        names = ", ".join(map(_quoted, _COLUMNS))
        values: list[object] = [_plain(getattr(one, name)) for name in _COLUMNS]
        replaced = ", ".join(f"{_quoted(name)} = excluded.{_quoted(name)}" for name in (*_COLUMNS, "expires_at"))
        found = self._session.run(
            "writing a dead letter",
            f"WITH held AS (SELECT pipeline FROM {self._fence} WHERE pipeline = %s AND epoch = %s FOR SHARE)"
            f" INSERT INTO {self._table} (pipeline, {names}, expires_at)"
            f" SELECT held.pipeline, {', '.join(f'%s::{_SQL[name]}' for name in _COLUMNS)}"
            ", clock_timestamp() + %s::interval FROM held"
            f' ON CONFLICT (pipeline, topic, partition, topic_id, "offset") DO UPDATE SET {replaced} RETURNING 1',
            [self._pipeline, one.epoch, *values, timedelta(seconds=retention)],
        )
        return bool(found)

    def remove_from(self, offsets: Mapping[str, int], topic_ids: Mapping[str, str], *, epoch: int) -> bool:
        """Remove the letters of each partition's offset and beyond: those of what the run of this epoch reads again.

        Returns whether the epoch is that of the fence row: nothing is removed otherwise.
        """
        places = [(*split_offset_key(key), offset) for key, offset in offsets.items()]
        ((held,),) = self._session.run(
            "removing the dead letters of what is read again",
            f"WITH held AS (SELECT pipeline FROM {self._fence} WHERE pipeline = %s AND epoch = %s FOR SHARE),"
            f" gone AS (DELETE FROM {self._table} AS letter USING held,"
            " unnest(%s::text[], %s::int[], %s::text[], %s::bigint[]) AS again (topic, partition, topic_id, start)"
            " WHERE letter.pipeline = held.pipeline AND letter.topic = again.topic"
            " AND letter.partition = again.partition AND letter.topic_id = again.topic_id"
            ' AND letter."offset" >= again.start) SELECT count(*) FROM held',
            [
                self._pipeline,
                epoch,
                [topic for topic, _, _ in places],
                [partition for _, partition, _ in places],
                [topic_ids.get(topic, "") for topic, _, _ in places],
                [offset for _, _, offset in places],
            ],
        )
        return bool(held)

    def of_partition(
        self, topic: str, partition: int, *, start: int = 0, until: int = _LARGEST, limit: int | None = None
    ) -> Iterator[DeadLetter]:
        """Yield the letters of offsets [start, until), at most `limit`, without key, value, headers and traceback.

        Letters of an offset follow by topic id.
        """
        yield from islice(self._listed(topic, partition, start, until), limit)

    def _listed(self, topic: str, partition: int, start: int, until: int) -> Iterator[DeadLetter]:
        last = (start, "")
        is_first = True
        while True:
            page = self._select(
                _LISTED,
                f'pipeline = %s AND topic = %s AND partition = %s AND "offset" < %s AND {_LIVES}'
                f' AND ("offset", topic_id COLLATE "C") {">=" if is_first else ">"} (%s, %s)'
                f' ORDER BY "offset", topic_id COLLATE "C" LIMIT {PAGE}',
                (self._pipeline, topic, partition, until, *last),
            )
            yield from page
            if len(page) < PAGE:
                return
            following = page[-1].offset, page[-1].topic_id
            if following <= last:
                raise FenceRowInvalid("the pages of dead letters do not move on")
            last, is_first = following, False

    def read(self, one: DeadLetter) -> DeadLetter | None:
        """Return a letter of a list with all that it holds."""
        return next(iter(self._select(_COLUMNS, f"{_PLACE} AND {_LIVES}", self._place(one))), None)

    def mark_retried(self, one: DeadLetter, *, by: str, at: datetime, to: str) -> None:
        """Record who sent a letter's record to Kafka again, when and to where; nothing to do when it is gone."""
        self._session.run(
            "marking a dead letter",
            f"UPDATE {self._table} SET retried_at = %s, retried_by = %s, retried_to = %s WHERE {_PLACE} AND {_LIVES}",
            (at, by, to, *self._place(one)),
        )

    def _place(self, one: DeadLetter) -> tuple[object, ...]:
        return self._pipeline, one.topic, one.partition, one.topic_id, one.offset

    def _select(self, columns: Sequence[str], where: str, values: Sequence[object]) -> list[DeadLetter]:
        names = ", ".join(map(_quoted, columns))
        found = self._session.run(
            "reading the dead letters", f"SELECT {names} FROM {self._table} WHERE {where}", values
        )
        return [checked(vars(named(columns, row))) for row in found]


_SQL: Final[Mapping[str, str]] = {
    name: {str: "text", int: "bigint", bytes: "bytea", datetime: "timestamptz"}[kind] for name, kind in TYPES.items()
}


def _quoted(name: str) -> str:
    return f'"{name}"'


def _plain(value: Any) -> Any:  # noqa: ANN401 - of a column of any type
    """Return a text without NUL, which PostgreSQL's texts cannot hold: of an error that quotes a record."""
    return value.replace("\0", "\N{SYMBOL FOR NULL}") if isinstance(value, str) else value
