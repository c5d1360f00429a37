"""The shop's records, and the comparison of tables with a log."""

from __future__ import annotations

from collections import Counter
from datetime import timedelta

import pytest

from shop.expectation import COLUMNS, MINUTE, Arrival, Rows, differences, expected, in_utc, sessions
from shop.feeds import CLOCKS, ORDERS, PAYMENTS, VIEWS, Shop

SHOP = Shop(users=40, every=MINUTE)
RECORDS = 400


def log(topic: str, partitions: int = 3) -> list[Arrival]:
    """The first records of a topic, in partitions by turns."""
    return [
        Arrival.of(topic, event.number % partitions, event.number // partitions, event.value())
        for event in SHOP.feed(topic).events(0, RECORDS)
    ]


@pytest.mark.parametrize("topic", [VIEWS, ORDERS, PAYMENTS])
def test_a_record_follows_from_its_number(topic: str) -> None:
    feed = SHOP.feed(topic)
    assert [event.value() for event in feed.after(100).events(0, 50)] == [
        event.value() for event in feed.events(100, 150)
    ]


def test_one_view_in_twenty_is_late_by_at_most_half_an_hour() -> None:
    newest, delays = log(VIEWS)[0].at, []
    for view in log(VIEWS):
        newest = max(newest, view.at)
        delays.append(newest - view.at)
    late = [delay for delay in delays if delay > MINUTE]
    assert 0.02 * RECORDS < len(late) < 0.08 * RECORDS
    assert 20 * MINUTE < max(late) < 32 * MINUTE


def test_a_payment_is_sent_again_as_it_was() -> None:
    values = Counter(event.value() for event in SHOP.payments().events(0, RECORDS))
    ids = Counter(payment.fields["payment_id"] for payment in log(PAYMENTS))
    assert max(ids.values()) > 1
    assert sorted(ids.values()) == sorted(values.values())


def test_merchants_clocks_differ_by_hours() -> None:
    ahead = {
        merchant: max(order.at for order in log(ORDERS) if order.fields["merchant"] == f"merchant-{merchant}")
        for merchant in range(3)
    }
    assert abs(ahead[1] - ahead[0] - CLOCKS[1]) < timedelta(hours=1)
    assert abs(ahead[2] - ahead[0] - CLOCKS[2]) < timedelta(hours=1)


EXAMPLES = {
    "sessions": [VIEWS],
    "views-per-minute": [VIEWS],
    "order-status": [ORDERS, PAYMENTS],
    "revenue": [PAYMENTS],
    "orders-per-merchant": [ORDERS],
}


@pytest.mark.parametrize("name", EXAMPLES)
def test_a_row_that_is_missing_or_too_much_is_a_difference(name: str) -> None:
    found_log = [arrival for topic in EXAMPLES[name] for arrival in log(topic)]
    wanted = expected(name, found_log, {"late_views": Rows()})
    assert differences(wanted, wanted) == []
    for table in wanted:
        row = next(iter(wanted[table]), ("no", "row"))
        without = {**wanted, table: wanted[table] - Rows([row])}
        assert len(differences(without, wanted)) == (1 if wanted[table] else 0)
        assert len(differences({**wanted, table: wanted[table] + Rows([row])}, wanted)) == 1
        assert {len(row) for row in wanted[table]} <= {len(COLUMNS[table])}


def test_a_view_that_is_lost_or_read_twice_shows_in_the_sessions() -> None:
    views = log(VIEWS)
    over, still_open = sessions(views)
    assert over
    assert still_open
    for other in (views[:200] + views[201:], [*views, views[200]]):
        assert sessions(other) != (over, still_open)


def test_a_view_is_in_one_table_of_two() -> None:
    views = log(VIEWS)
    late = in_utc(("/0", views[7].minute.replace(tzinfo=None), *views[7].place, views[7].fields["user"]))
    tables = expected("views-per-minute", views, {"late_views": Rows([late])})
    assert tables["late_views"].total() == 1
    assert sum(row[2] for row in tables["views_per_minute"]) == RECORDS - 1
