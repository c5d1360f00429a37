"""The history of fence rows in PostgreSQL: for people, no decision about committing reads it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any, Final

from fencepost.fence.errors import FenceRowInvalid
from fencepost.fence.history import MAPS, NO_CHANGE, Change
from fencepost.fence.postgresql.schema import name_of
from fencepost.fence.postgresql.session import Session
from fencepost.fence.postgresql.table import RECORDED, named

PAGE: Final = 500
"""Changes of one answer: one of a thousand partitions has 0.1 MB."""
_READ: Final = (*RECORDED, "written_at")
_NUMBERS: Final = ("epoch", "version", "clock")
_FIGURES: Final = ("records", "duration_ms", "state_bytes", "lag")
_TEXTS: Final = ("owner", "driver", "code")
_MOMENTS: Final = ("hour", "committed_at", "written_at")
_UNIX_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)


def changes_of_hour(
    session: Session, schema: str, pipeline: str, hour: datetime, *, after: tuple[int, int] = NO_CHANGE
) -> Iterator[Change]:
    """Yield the changes of an hour that came after this epoch and version, a page at a time, oldest first.

    Raises FenceError.
    """
    epoch, version = after
    while True:
        page = changes_after(session, schema, pipeline, hour, epoch=epoch, version=version, limit=PAGE)
        yield from page
        if len(page) < PAGE:
            return
        if (page[-1].epoch, page[-1].version) <= (epoch, version):
            raise FenceRowInvalid("the history's pages do not move on")
        epoch, version = page[-1].epoch, page[-1].version


def changes_after(
    session: Session, schema: str, pipeline: str, hour: datetime, *, epoch: int, version: int, limit: int
) -> Sequence[Change]:
    """Return the first changes of an hour that came after this one, oldest first. Raises FenceError."""
    found = session.run(
        "reading the history",
        f"SELECT {', '.join(_READ)} FROM {name_of(schema, 'fence_changes')} WHERE pipeline = %s AND hour = %s"
        " AND (epoch, version) > (%s, %s) ORDER BY epoch, version LIMIT %s",
        (pipeline, hour, epoch, version, limit),
    )
    return [_change(vars(named(_READ, row))) for row in found[:limit]]


def _change(values: dict[str, Any]) -> Change:
    """Return the change in a row. Raises FenceRowInvalid, naming the column that holds something else."""
    for name in MAPS:
        values[name] = {} if values[name] is None else values[name]
    kinds: dict[str, Any] = {
        **dict.fromkeys(_NUMBERS, int),
        **dict.fromkeys(_FIGURES, int | None),
        **dict.fromkeys(_TEXTS, str | None),
        **dict.fromkeys(_MOMENTS, datetime | None),
        **dict.fromkeys(MAPS, dict),
        **dict.fromkeys(("base", "committed"), bool),
    }
    for name, kind in kinds.items():
        if not isinstance(values[name], kind):
            raise FenceRowInvalid(f"column {name} of the history holds {type(values[name]).__name__}")
    moments = {name: moment.astimezone(UTC) for name in _MOMENTS if (moment := values[name]) is not None}
    values |= moments
    if "written_at" in moments:
        values["written_at"] = (moments["written_at"] - _UNIX_EPOCH) // timedelta(microseconds=1)
    return Change(**values)
