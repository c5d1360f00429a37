"""The stateful example that can be played: sessions of a shop's users, of late and unordered views."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, Final

from demo.example import Account
from demo.scene import Scene
from fencepost.fence import FenceRow
from flights.dataset import Events
from flights.history import HistoryRow
from flights.ledger import Ledger
from harness.stored_state import batch_watermark, state_rows
from harness.waiting import eventually
from shop.comparison import read_arrivals, read_tables
from shop.expectation import MINUTE, Arrival, Row, Rows, differences, sessions
from shop.feeds import Shop

DELAY: Final = timedelta(hours=1)
"""Of the example's watermark. The views are half an hour late at most, so none is dropped."""
CLOSED_SECONDS: Final = 60.0
"""How long after the last view its watermark may take: a batch without records."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionsAccount:
    """The table and the state beside a recomputation from Kafka's log."""

    produced: int
    views: int
    late: int
    """Views that are more than a minute older than one before them in their partition."""
    over: int
    still_open: int
    differing: tuple[str, ...]

    @property
    def ok(self) -> bool:
        """Whether every view is in the log once, and every session in the table or in the state."""
        return self.produced == self.views and not self.differing

    def lines(self) -> list[str]:
        """For a human."""
        counts = (
            ("produced", self.produced, ""),
            ("in the log", self.views, f", {self.late:,} of them late"),
            ("finished", self.over, " sessions in the table"),
            ("open", self.still_open, " sessions in the state"),
            ("differences", len(self.differing), ""),
        )
        width = max(len(f"{count:,}") for _, count, _ in counts)
        return [*(f"{name:<14}{count:>{width},}{more}" for name, count, more in counts), *self.differing]


@dataclass(frozen=True, slots=True)
class Sessions:
    """Views of pages, and the sessions that they are."""

    folder: str = "shop/sessions"
    records: str = "views"
    amount: int = 120_000
    rate: float = 4_000
    comparison: str = "every finished session of the table, and every open one of the state, against Kafka's log"
    promise: str = "every session is there once, as the views in Kafka's log have it"

    @property
    def feed(self) -> Events:
        """The views: of 4,000 users, 20,000 per hour, 5 % of them late."""
        return Shop().views()

    def account(self, scene: Scene, ledger: Ledger, history: Sequence[HistoryRow]) -> Account:  # noqa: ARG002
        """Read the log back, and compare the table and the state with the sessions of its views."""
        log = read_arrivals(scene.environment.kafka_host, scene.topics)
        over, still_open = sessions(log)
        row = closed(scene, max(view.at for view in log) - DELAY)
        stored = state_rows(scene.cassandra, scene.fence_keyspace, row)
        found = {**read_tables(scene.cassandra, scene.tables), "state": Rows(map(session_of, stored))}
        return SessionsAccount(
            produced=len(ledger),
            views=len(log),
            late=late(log),
            over=found["sessions"].total(),
            still_open=found["state"].total(),
            differing=tuple(differences(found, {"sessions": over, "state": still_open})),
        )


def closed(scene: Scene, watermark: datetime) -> FenceRow:
    """Wait until a batch has closed the sessions up to the watermark; return the fence row."""

    def there() -> FenceRow | None:
        row = scene.fence()
        return row if row is not None and batch_watermark(row) == watermark else None

    return eventually(f"a batch has the watermark {watermark}", there, seconds=CLOSED_SECONDS)


def session_of(stored: dict[str, Any]) -> Row:
    """Return a session of the state as a row of the table would be."""
    value = stored["value"]
    first, last = datetime.fromisoformat(value["min"]["at"]), datetime.fromisoformat(value["max"])
    return (value["user"], first, last, value["count"], value["min"]["page"])


def late(log: Sequence[Arrival]) -> int:
    """Count the views that are more than a minute older than one before them in their partition."""
    newest: dict[int, datetime] = {}
    count = 0
    for view in sorted(log, key=lambda view: view.place):
        before = newest.get(view.partition, view.at)
        count += before - view.at > MINUTE
        newest[view.partition] = max(before, view.at)
    return count
