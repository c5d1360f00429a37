"""What plain Python makes of a log of the shop: the tables that the examples have to write.

It shares no code and no method with the examples. The tables follow from the log alone, however it was cut into batches
and however often a driver died, because no record is so late that Spark drops it: the records of the feeds are half an
hour late at most, and a watermark that drops records is an hour behind. `views_per_minute` has the one exception.
"""

from __future__ import annotations

import itertools
import json
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any, Final, TypeAlias

Row: TypeAlias = tuple[Any, ...]
"""The values of `COLUMNS`. Times have a zone."""
Rows: TypeAlias = Counter[Row]
Tables: TypeAlias = Mapping[str, Rows]
"""Rows by the name of their table."""
Place: TypeAlias = tuple[str, int, int]
"""Topic, partition and offset."""

COLUMNS: Final[Mapping[str, Sequence[str]]] = {
    "sessions": ("user", "started_at", "ended_at", "views", "first_page"),
    "views_per_minute": ("page", "minute", "views"),
    "late_views": ("page", "minute", "topic", "partition", "offset", "user"),
    "order_status": (
        "order_id",
        "order_status",
        "total_cents",
        "ordered_at",
        "payment_status",
        "paid_cents",
        "paid_at",
    ),
    "revenue": ("merchant", "hour", "payments", "cents"),
    "orders_per_merchant": ("merchant", "minute", "orders"),
    "late_orders": ("merchant", "minute", "topic", "partition", "offset", "order_id"),
}
SHOWN: Final = 5
"""Rows of one kind that a difference names."""
MINUTE: Final = timedelta(minutes=1)
TIMEOUT: Final = 30 * MINUTE
"""Between two views of a session, at most."""
OPEN: Final = 90 * MINUTE
"""How long a session is open after its last view, by the newest view of all users."""
MERCHANTS_MINUTE_OPEN: Final = 6 * MINUTE
"""How long a minute is open after its start, by the newest order of the merchant."""


@dataclass(frozen=True, slots=True)
class Arrival:
    """A record in Kafka's log; `fields` are those of its JSON, without `at`."""

    topic: str
    partition: int
    offset: int
    at: datetime
    fields: Mapping[str, Any]

    @classmethod
    def of(cls, topic: str, partition: int, offset: int, value: bytes) -> Arrival:
        """Read a record's value."""
        fields = json.loads(value)
        return cls(topic, partition, offset, datetime.fromisoformat(fields.pop("at")), fields)

    @property
    def place(self) -> Place:
        """Where the log has it."""
        return self.topic, self.partition, self.offset

    @property
    def minute(self) -> datetime:
        """The minute in which it happened."""
        return self.at.replace(second=0, microsecond=0)


def sessions(views: Iterable[Arrival]) -> tuple[Rows, Rows]:
    """Return the sessions that are over, and those that are open, once the watermark has followed the newest view."""
    ordered = sorted(views, key=lambda view: (view.fields["user"], view.at))
    newest = max((view.at for view in ordered), default=None)
    over, still_open = Rows(), Rows()
    for user, own in itertools.groupby(ordered, key=lambda view: str(view.fields["user"])):
        for session in _parted(own):
            first, last = session[0], session[-1]
            row = (user, first.at, last.at, len(session), first.fields["page"])
            (over if newest is not None and last.at + OPEN <= newest else still_open)[row] += 1
    return over, still_open


def _parted(views: Iterable[Arrival]) -> list[list[Arrival]]:
    """Part the views of a user, which are in the order of their times."""
    found: list[list[Arrival]] = []
    for view in views:
        if found and view.at - found[-1][-1].at <= TIMEOUT:
            found[-1].append(view)
        else:
            found.append([view])
    return found


def views_per_minute(views: Iterable[Arrival], late: Collection[Place]) -> Tables:
    """Return the counts, and the rows of the late views.

    Which views are late depends on where batches were cut. So those are given: each view has to be in one table.
    """
    counts, rows = Counter[tuple[str, datetime]](), Rows()
    for view in views:
        page = str(view.fields["page"])
        if view.place in late:
            rows[page, view.minute, *view.place, view.fields["user"]] += 1
        else:
            counts[page, view.minute] += 1
    return {"views_per_minute": _counted(counts), "late_views": rows}


def order_status(records: Iterable[Arrival]) -> Rows:
    """Return a row for each order, of the newest record in either topic."""
    newest: dict[str, dict[str, Arrival]] = {}
    for record in sorted(records, key=lambda record: (record.at, record.partition, record.offset)):
        newest.setdefault(record.fields["order_id"], {})[record.topic] = record
    return Rows(
        (order, *_known(known.get("orders")), *_known(known.get("payments"))) for order, known in newest.items()
    )


def _known(record: Arrival | None) -> Row:
    return (None, None, None) if record is None else (record.fields["status"], record.fields["cents"], record.at)


def revenue(payments: Iterable[Arrival]) -> Rows:
    """Return the number and the sum of the payments of each merchant and hour, each payment once."""
    once = {payment.fields["payment_id"]: payment for payment in payments}
    found: dict[tuple[str, datetime], list[int]] = {}
    for payment in once.values():
        hour = payment.at.replace(minute=0, second=0, microsecond=0)
        found.setdefault((payment.fields["merchant"], hour), []).append(payment.fields["cents"])
    return Rows((*key, len(cents), sum(cents)) for key, cents in found.items())


def orders_per_merchant(orders: Iterable[Arrival]) -> Tables:
    """Return the minutes that the merchants' own clocks have closed, and the orders that came too late for theirs."""
    counts, late = Counter[tuple[str, datetime]](), Rows()
    newest: dict[str, datetime] = {}
    for order in sorted(orders, key=lambda order: order.place):
        merchant = str(order.fields["merchant"])
        if order.minute + MERCHANTS_MINUTE_OPEN <= newest.get(merchant, order.at):
            late[merchant, order.minute, *order.place, order.fields["order_id"]] += 1
        else:
            counts[merchant, order.minute] += 1
        newest[merchant] = max(newest.get(merchant, order.at), order.at)
    closed = {key: count for key, count in counts.items() if key[1] + MERCHANTS_MINUTE_OPEN <= newest[key[0]]}
    return {"orders_per_merchant": _counted(closed), "late_orders": late}


def expected(example: str, log: Sequence[Arrival], found: Tables) -> Tables:
    """Return the tables that an example has to have written for the log; `found` shows which views were late."""
    match example:
        case "sessions":
            return {"sessions": sessions(log)[0]}
        case "views-per-minute":
            return views_per_minute(log, {row[2:5] for row in found["late_views"]})
        case "order-status":
            return {"order_status": order_status(log)}
        case "revenue":
            return {"revenue": revenue(log)}
        case "orders-per-merchant":
            return orders_per_merchant(log)
    raise ValueError(f"the shop has no example {example!r}")


def differences(found: Tables, wanted: Tables) -> list[str]:
    """Return a sentence for each table that has other rows, with some of them."""
    return [
        f"{table}: {len(rows)} {what}, such as {', '.join(map(repr, list(rows)[:SHOWN]))}"
        for table in wanted
        for what, rows in (
            ("rows are missing", wanted[table] - found.get(table, Rows())),
            ("rows should not be there", found.get(table, Rows()) - wanted[table]),
        )
        if rows
    ]


def in_utc(row: Sequence[Any]) -> Row:
    """Return a row as Cassandra's driver gives it, with the zone that its times lack."""
    return tuple(value.replace(tzinfo=UTC) if isinstance(value, datetime) else value for value in row)


def _counted(counts: Mapping[tuple[str, datetime], int]) -> Rows:
    return Rows((*key, count) for key, count in counts.items())
