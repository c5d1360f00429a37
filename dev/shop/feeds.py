"""What happens in a shop, as records by number: views of pages, orders, and payments.

A record follows from its number alone. Records arrive in the order of their numbers, each an interval after the one
before. The time in a record, `at`, is earlier than its arrival: by up to a minute, and for a few by much more. So
records are unordered, and some are late.
"""

from __future__ import annotations

import hashlib
import struct
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Final

from flights.dataset import Event, Value

VIEWS: Final = "views"
ORDERS: Final = "orders"
PAYMENTS: Final = "payments"

OPENING: Final = datetime(2026, 11, 27, 12, tzinfo=UTC)
"""The arrival of the first record."""
MINUTE: Final = timedelta(minutes=1)
CLOCKS: Final = (timedelta(0), timedelta(hours=-2), timedelta(hours=2))
"""What the clocks of the merchants add to the time, in turns."""
PAGES: Final = 5
ORDERS_BACK: Final = 40
"""A record is of one of so many newest orders."""


@dataclass(frozen=True, slots=True)
class ShopFeed:
    """The records of one topic; one for `flights.loader`."""

    name: str
    event: Callable[[int], Event]

    def events(self, first: int, until: int) -> Iterator[Event]:
        """Events `first` to `until`, the last one left out."""
        return map(self.event, range(first, until))

    def after(self, number: int) -> ShopFeed:
        """Return the feed from this number on."""
        return ShopFeed(self.name, lambda place: self.event(number + place))


@dataclass(frozen=True, slots=True, kw_only=True)
class Shop:
    """A shop with so many users and merchants.

    `every` is the interval between two arrivals of a feed. The share `late` (0 to 1) of the records is late by up to
    `by`. The share `again` of the payments repeats one that arrived up to `again_within` earlier.
    """

    users: int = 4_000
    merchants: int = 30
    every: timedelta = timedelta(milliseconds=180)
    late: float = 0.05
    by: timedelta = 30 * MINUTE
    again: float = 0.1
    again_within: timedelta = 10 * MINUTE

    def views(self) -> ShopFeed:
        """Views of pages, by user."""
        return ShopFeed(VIEWS, self._view)

    def orders(self) -> ShopFeed:
        """Orders and their changes, by merchant; `at` is by the merchant's own clock."""
        return ShopFeed(ORDERS, self._order)

    def payments(self) -> ShopFeed:
        """Payments by merchant, some of them more than once, some before their order."""
        return ShopFeed(PAYMENTS, self._payment)

    def feed(self, topic: str) -> ShopFeed:
        """The feed of a topic of the examples."""
        return {VIEWS: self.views, ORDERS: self.orders, PAYMENTS: self.payments}[topic]()

    def _view(self, number: int) -> Event:
        chance = _chances(VIEWS, number)
        user = f"user-{_below(self.users, chance)}"
        fields = {"user": user, "page": f"/{_below(PAGES, chance)}"}
        return _event(number, user, fields, self._time(number, chance))

    def _order(self, number: int) -> Event:
        chance = _chances(ORDERS, number)
        order = max(0, number - _below(ORDERS_BACK, chance))
        merchant = order % self.merchants
        fields = {
            "order_id": f"order-{order}",
            "merchant": f"merchant-{merchant}",
            "status": ("open", "sent", "returned")[_below(3, chance)],
            "cents": 100 + _below(10_000, chance),
        }
        at = self._time(number, chance) + CLOCKS[merchant % len(CLOCKS)]
        return _event(number, f"merchant-{merchant}", fields, at)

    def _payment(self, number: int) -> Event:
        chance = _chances(PAYMENTS, number)
        reach = min(number, self.again_within // self.every)
        if next(chance) < self.again and reach > 0:
            first = self._payment(number - 1 - _below(reach, chance))
            return Event(number, first.key, first.fields)
        order = max(0, number + ORDERS_BACK // 2 - _below(ORDERS_BACK, chance))
        merchant = f"merchant-{order % self.merchants}"
        fields = {
            "payment_id": f"payment-{number}",
            "order_id": f"order-{order}",
            "merchant": merchant,
            "status": ("due", "paid", "refused")[_below(3, chance)],
            "cents": 100 + _below(10_000, chance),
        }
        return _event(number, merchant, fields, self._time(number, chance))

    def _time(self, number: int, chance: Iterator[float]) -> datetime:
        behind = next(chance) * (self.by if next(chance) < self.late else MINUTE)
        return OPENING + number * self.every - behind


def _chances(topic: str, number: int) -> Iterator[float]:
    """Return numbers of [0, 1) that follow from the record's place: `random.Random` takes ten times as long to seed."""
    words = struct.unpack("16I", hashlib.blake2b(f"{topic} {number}".encode()).digest())
    return (word / 2**32 for word in words)


def _below(limit: int, chance: Iterator[float]) -> int:
    return int(next(chance) * limit)


def _event(number: int, key: str, fields: Mapping[str, Value], at: datetime) -> Event:
    """Return an event. Cassandra's timestamps have milliseconds."""
    return Event(number, key, {**fields, "at": at.isoformat(timespec="milliseconds")})
