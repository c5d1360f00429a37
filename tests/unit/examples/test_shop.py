"""The shop's stateful pipelines, with late and unordered records and with restarts, against plain Python."""

from __future__ import annotations

import itertools
import json
import random
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any, TypeAlias

from fencepost.testing.streams import StreamTest, disordered
from unit.examples.conftest import example

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

Record: TypeAlias = Mapping[str, Any]
Row: TypeAlias = Mapping[str, Any]

NOON = datetime(2026, 11, 27, 12, tzinfo=UTC)
MINUTE = timedelta(minutes=1)
HOUR = timedelta(hours=1)


def record(topic: str, at: datetime, *, partition: int = 0, **fields: Any) -> Record:
    """A record as the source yields it."""
    value = json.dumps({**fields, "at": at.isoformat()}).encode()
    return {"topic": topic, "partition": partition, "value": value}


def event(given: Record) -> dict[str, Any]:
    """The fields of a record."""
    found: dict[str, Any] = json.loads(given["value"])
    return {**found, "at": datetime.fromisoformat(found["at"])}


def arrived(batches: Iterable[Sequence[Record]]) -> list[dict[str, Any]]:
    return [event(given) for batch in batches for given in batch]


def minute_of(at: datetime) -> datetime:
    return at.replace(second=0, microsecond=0)


def values(rows: Iterable[Row], *names: str) -> list[tuple[Any, ...]]:
    """Columns of the rows, in the order of the rows."""
    return [tuple(row[name] for name in names) for row in rows]


def table(rows: Iterable[Row], *key: str) -> dict[tuple[Any, ...], Row]:
    """A row of a later batch replaces the one before it."""
    return dict(zip(values(rows := list(rows), *key), rows, strict=True))


def shop(spark: SparkSession, name: str, *sinks: str, output_mode: str = "update") -> StreamTest:
    module = example(f"shop/{name}", name.replace("-", "_"))
    return StreamTest(
        spark, module.stream, finish=getattr(module, "finish", None), sinks=sinks, output_mode=output_mode
    )


def views(number: int, *, users: int, every: timedelta, seed: int = 1) -> list[Record]:
    """Views of pages, each at some moment of an interval of its own."""
    choice = random.Random(seed)
    return [
        record(
            "views",
            NOON + (place + choice.random()) * every,
            user=f"user-{choice.randrange(users)}",
            page=f"/{choice.randrange(3)}",
        )
        for place in range(number)
    ]


def sessions(found: Iterable[Mapping[str, Any]]) -> list[tuple[Any, ...]]:
    """Return user, start, end, number of views, and first page of each session that is over an hour before the end."""
    ordered = sorted(found, key=lambda view: (view["user"], view["at"]))
    over = max(view["at"] for view in ordered) - HOUR - 30 * MINUTE
    rows = []
    for user, own in itertools.groupby(ordered, key=lambda view: view["user"]):
        session: list[Mapping[str, Any]] = []
        for view in [*own, None]:
            if session and (view is None or view["at"] - session[-1]["at"] > 30 * MINUTE):
                rows.append((user, session[0]["at"], session[-1]["at"], len(session), session[0]["page"]))
                session = []
            session += [view] if view else []
    return [row for row in rows if row[2] <= over]


def test_sessions_are_those_of_all_views_and_are_written_once(spark: SparkSession) -> None:
    """Views are late by up to half an hour, which is as long as the timeout."""
    batches = disordered(views(240, users=12, every=1.5 * MINUTE), batch=60, by=20)
    stream = shop(spark, "sessions", "sessions", output_mode="append")
    rows = stream.check_restarts(batches)["sessions"]
    found = values(rows, "user", "started_at", "ended_at", "views", "first_page")
    assert sorted(found) == sessions(arrived(batches))
    assert len(found) > 20


def test_a_view_is_counted_in_its_minute_or_is_in_the_table_of_late_views(spark: SparkSession) -> None:
    """Views are late by up to 40 minutes, of which the watermark allows five."""
    batches = disordered(views(200, users=9, every=MINUTE / 4), batch=50, by=160)
    keys = {"views_per_minute": ["page", "minute"], "late_views": ["page", "minute", "topic", "partition", "offset"]}
    rows = shop(spark, "views-per-minute", *keys).check_restarts(batches, keys=keys)

    counts: Counter[tuple[str, datetime]] = Counter()
    late: Counter[tuple[str, datetime, str]] = Counter()
    watermark = NOON - HOUR
    for batch in batches:
        for view in map(event, batch):
            minute = minute_of(view["at"])
            if minute + MINUTE <= watermark:
                late[view["page"], minute, view["user"]] += 1
            else:
                counts[view["page"], minute] += 1
        watermark = max(watermark, max(event(given)["at"] for given in batch) - 5 * MINUTE)

    written = table(rows["views_per_minute"], "page", "minute")
    assert {key: row["views"] for key, row in written.items()} == counts
    assert Counter(values(rows["late_views"], "page", "minute", "user")) == late
    assert len(late) > 3


def order_records() -> list[Record]:
    """Orders of which some are paid for, and payments of which some are for an order that is not there yet."""
    choice = random.Random(2)
    times = (NOON + timedelta(seconds=place) for place in itertools.count())
    return [
        record(
            topic, next(times), order_id=f"order-{choice.randrange(40)}", status=status, cents=choice.randrange(9999)
        )
        for _ in range(50)
        for topic, status in (
            ("orders", choice.choice(("open", "sent", "returned"))),
            ("payments", choice.choice(("due", "paid", "refused"))),
        )
        if choice.random() < 0.8
    ]


def test_an_order_has_the_newest_of_both_topics_whatever_arrives_first(spark: SparkSession) -> None:
    batches = disordered(order_records(), batch=30, late=0.2, by=50)
    rows = shop(spark, "order-status", "order_status").check_restarts(batches, keys=["order_id"])["order_status"]

    newest: dict[str, dict[str, dict[str, Any]]] = {}
    for given in sorted(itertools.chain(*batches), key=lambda given: event(given)["at"]):
        newest.setdefault(event(given)["order_id"], {})[given["topic"]] = event(given)
    expected = {
        (order,): tuple(
            known.get(topic, {}).get(field) for topic in ("orders", "payments") for field in ("status", "cents", "at")
        )
        for order, known in newest.items()
    }

    columns = ("order_status", "total_cents", "ordered_at", "payment_status", "paid_cents", "paid_at")
    found = {order: values([row], *columns)[0] for order, row in table(rows, "order_id").items()}
    assert found == expected
    assert any(None in row for row in found.values())


def payments() -> list[Record]:
    """Payments, a quarter of which are sent again, up to twenty minutes later."""
    choice = random.Random(3)
    sent = [
        (
            place + again * choice.uniform(0, 20),
            record(
                "payments",
                NOON + place * MINUTE,
                payment_id=f"payment-{place}",
                merchant=f"merchant-{place % 3}",
                cents=place,
            ),
        )
        for place in range(150)
        for again in range(1 + (choice.random() < 0.25))
    ]
    return [given for _, given in sorted(sent, key=lambda item: item[0])]


def test_a_payment_that_is_sent_again_counts_once(spark: SparkSession) -> None:
    batches = disordered(payments(), batch=60, by=20)
    rows = shop(spark, "revenue", "revenue").check_restarts(batches, keys=["merchant", "hour"])["revenue"]

    once = {payment["payment_id"]: payment for payment in arrived(batches)}
    cents: Counter[tuple[str, datetime]] = Counter()
    number: Counter[tuple[str, datetime]] = Counter()
    for payment in once.values():
        key = payment["merchant"], payment["at"].replace(minute=0)
        cents[key] += payment["cents"]
        number[key] += 1

    found = table(rows, "merchant", "hour")
    assert {key: (row["payments"], row["cents"]) for key, row in found.items()} == {
        key: (number[key], cents[key]) for key in number
    }
    assert len(once) < len(arrived(batches))


CLOCKS = {"punctual": timedelta(0), "behind": -2 * HOUR, "ahead": 2 * HOUR}


def orders_by_clock() -> list[Record]:
    """Orders of three merchants, one every 15 seconds, each by its merchant's clock and in its merchant's partition."""
    return [
        record(
            "orders",
            NOON + place * MINUTE / 4 + CLOCKS[merchant],
            partition=list(CLOCKS).index(merchant),
            order_id=f"order-{place}",
            merchant=merchant,
        )
        for place, merchant in enumerate(itertools.islice(itertools.cycle(CLOCKS), 240))
    ]


def test_a_merchants_clock_closes_its_own_minutes_alone(spark: SparkSession) -> None:
    batches = disordered(orders_by_clock(), batch=60, by=80)
    keys = {"orders_per_merchant": ["merchant", "minute"], "late_orders": ["merchant", "topic", "partition", "offset"]}
    rows = shop(spark, "orders-per-merchant", *keys).check_restarts(batches, keys=keys)

    counts: Counter[tuple[str, datetime]] = Counter()
    late = []
    newest = dict.fromkeys(CLOCKS, NOON - 3 * HOUR)
    for order in arrived(batches):
        merchant, minute = order["merchant"], minute_of(order["at"])
        if minute + 6 * MINUTE <= newest[merchant]:
            late.append((merchant, minute, order["order_id"]))
        else:
            counts[merchant, minute] += 1
        newest[merchant] = max(newest[merchant], order["at"])
    closed = {key: orders for key, orders in counts.items() if key[1] + 6 * MINUTE <= newest[key[0]]}

    written = values(rows["orders_per_merchant"], "merchant", "minute", "orders")
    assert sorted(written) == sorted((*key, orders) for key, orders in closed.items())
    assert sorted(values(rows["late_orders"], "merchant", "minute", "order_id")) == sorted(late)
    assert {merchant for merchant, _, _ in late} == set(CLOCKS)
    assert {merchant for merchant, _, _ in written} == set(CLOCKS)
    assert len(late) < 0.1 * 240
