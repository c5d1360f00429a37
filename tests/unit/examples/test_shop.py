"""The shop's stateful pipelines, with late and unordered records and with restarts, against plain Python."""

from __future__ import annotations

import zlib
from collections import Counter
from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any, TypeAlias

import pytest

from fencepost.testing.streams import StreamTest
from shop.expectation import COLUMNS, MINUTE, Arrival, Rows, Tables, differences, expected
from shop.feeds import Shop, ShopFeed
from unit.examples.conftest import example

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

Records: TypeAlias = list[Mapping[str, Any]]
"""As the source yields them."""


def records(*feeds: ShopFeed, number: int, partitions: int = 3) -> Records:
    """The first records of the feeds, in the order in which they arrive; a key is in one partition."""
    found: Records = []
    ends = Counter[tuple[str, int]]()
    for events in zip(*(feed.events(0, number) for feed in feeds), strict=True):
        for feed, event in zip(feeds, events, strict=True):
            place = feed.name, zlib.crc32(event.key.encode()) % partitions
            topic, partition = place
            found.append({"topic": topic, "partition": partition, "offset": ends[place], "value": event.value()})
            ends[place] += 1
    return found


def batches(given: Records, size: int) -> list[Records]:
    return [given[start : start + size] for start in range(0, len(given), size)]


def arrival(record: Mapping[str, Any]) -> Arrival:
    return Arrival.of(record["topic"], record["partition"], record["offset"], record["value"])


def run(
    spark: SparkSession,
    name: str,
    given: list[Records],
    *,
    keys: Mapping[str, Sequence[str]] | None = None,
    sinks: Sequence[str] = (),
    output_mode: str = "update",
) -> Tables:
    """Run an example on batches, also with restarts; return its tables. With `keys`, a later row replaces another."""
    module = example(f"shop/{name}", name.replace("-", "_"))
    stream = StreamTest(
        spark,
        module.stream,
        finish=getattr(module, "finish", None),
        sinks=[*(keys or ()), *sinks],
        output_mode=output_mode,
    )
    found = stream.check_restarts(given, keys=keys)
    return {sink: table(rows, COLUMNS[sink], (keys or {}).get(sink)) for sink, rows in found.items()}


def table(rows: Sequence[Mapping[str, Any]], columns: Sequence[str], key: Sequence[str] | None) -> Rows:
    """The rows of a table; without a key, all that were written."""
    written = [tuple(row[column] for column in columns) for row in rows]
    if key is None:
        return Rows(written)
    return Rows(dict(zip((tuple(row[column] for column in key) for row in rows), written, strict=True)).values())


def check(name: str, given: Records, found: Tables) -> None:
    differing = differences(found, expected(name, [arrival(record) for record in given], found))
    assert not differing, "\n".join(differing)


def test_sessions_are_those_of_all_views_and_are_written_once(spark: SparkSession) -> None:
    """Views are late by up to half an hour, which is as long as the timeout."""
    views = records(Shop(users=12, every=1.5 * MINUTE).views(), number=240)
    found = run(spark, "sessions", batches(views, 60), sinks=["sessions"], output_mode="append")
    check("sessions", views, found)
    assert found["sessions"].total() > 20


@pytest.mark.long
def test_a_view_is_counted_in_its_minute_or_is_in_the_table_of_late_views(spark: SparkSession) -> None:
    """Views are late by up to 40 minutes, of which the watermark allows five."""
    views = records(Shop(users=9, every=MINUTE / 4, late=0.1, by=40 * MINUTE).views(), number=200)
    given = batches(views, 50)
    keys = {"views_per_minute": ["page", "minute"], "late_views": ["page", "minute", "topic", "partition", "offset"]}
    found = run(spark, "views-per-minute", given, keys=keys)

    check("views-per-minute", views, found)
    assert {row[2:5] for row in found["late_views"]} == {view.place for view in behind(given, 5 * MINUTE)}
    assert len(found["late_views"]) > 3


def behind(given: list[Records], delay: timedelta) -> list[Arrival]:
    """The views whose minute the watermark had closed before their batch."""
    late = []
    watermark: datetime | None = None
    for batch in given:
        views = [arrival(record) for record in batch]
        late += [view for view in views if watermark is not None and view.minute + MINUTE <= watermark]
        newest = max(view.at for view in views) - delay
        watermark = newest if watermark is None else max(watermark, newest)
    return late


@pytest.mark.long
def test_an_order_has_the_newest_of_both_topics_whatever_arrives_first(spark: SparkSession) -> None:
    shop = Shop(merchants=3, every=timedelta(seconds=1))
    given = records(shop.orders(), shop.payments(), number=50)
    found = run(spark, "order-status", batches(given, 30), keys={"order_status": ["order_id"]})
    check("order-status", given, found)
    assert any(None in row for row in found["order_status"])
    assert any(None not in row for row in found["order_status"])


@pytest.mark.long
def test_a_payment_that_is_sent_again_counts_once(spark: SparkSession) -> None:
    shop = Shop(merchants=3, every=MINUTE, again=0.25, again_within=20 * MINUTE)
    given = records(shop.payments(), number=150)
    found = run(spark, "revenue", batches(given, 60), keys={"revenue": ["merchant", "hour"]})
    check("revenue", given, found)
    assert len({arrival(record).fields["payment_id"] for record in given}) < 130


@pytest.mark.long
def test_a_merchants_clock_closes_its_own_minutes_alone(spark: SparkSession) -> None:
    """Of three merchants, one's clock is two hours slow, and another's two hours fast."""
    given = records(Shop(merchants=3, every=MINUTE / 4).orders(), number=240)
    keys = {"orders_per_merchant": ["merchant", "minute"], "late_orders": ["merchant", "topic", "partition", "offset"]}
    found = run(spark, "orders-per-merchant", batches(given, 60), keys=keys)

    check("orders-per-merchant", given, found)
    merchants = {f"merchant-{number}" for number in range(3)}
    for rows in found.values():
        assert {row[0] for row in rows} == merchants
    assert len(found["late_orders"]) < 24
    minutes = [row[1] for row in found["orders_per_merchant"]]
    assert max(minutes) - min(minutes) > timedelta(hours=4)
