"""The pipelines of a list as rows of a table: chosen by words and state, in an order."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final

from fencepost_cli.ports import Json
from fencepost_operator.api import PAUSED_ANNOTATION, ObjectKey, State, asks_for_pause, condition_of, read_status

ROWS: Final = 200
"""Rows that a page has at first, and by which it grows when its end is shown: what is refreshed while one looks."""
MOST_ROWS: Final = 2000
"""Rows of one page: a browser lays them out in some tenths of a second."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One pipeline. `ready` is the status of the condition, '' without one; texts may be a tenant's."""

    key: ObjectKey
    state: str
    ready: str
    message: str
    lag: int | None
    rate: int | None
    epoch: int | None
    restarts: int
    created_at: datetime
    is_paused: bool

    @property
    def level(self) -> str:
        """How urgent it looks: 'bad', 'warn', 'busy', 'idle' or 'good'."""
        if self.state == State.STALLED or self.ready == "False":
            return "bad" if self.state in {State.STALLED, State.RESTARTING} else "warn"
        if self.is_paused:
            return "warn"
        if self.state in {State.RUNNING, State.CATCHING_UP}:
            return "good"
        return "idle" if self.state in {State.SUSPENDED, State.STANDBY} else "busy"


@dataclass(frozen=True, slots=True, kw_only=True)
class Choice:
    """Which rows, and in which order: `sort` is a column's name, after a '-' the largest first.

    At most `shown` of them are on the page.
    """

    words: str = ""
    state: str = ""
    sort: str = ""
    shown: int = ROWS

    @property
    def column(self) -> str:
        """The column of the order."""
        return self.sort.removeprefix("-")

    @property
    def is_descending(self) -> bool:
        """Whether the largest come first."""
        return self.sort.startswith("-")

    def ordered_by(self, column: str) -> Choice:
        """Return the choice after a click on a column: its order, or if it has that already the other way round."""
        first = f"-{column}" if column in NUMBERS else column
        other = column if column in NUMBERS else f"-{column}"
        return Choice(words=self.words, state=self.state, sort=other if self.sort == first else first)


_ORDERS: Final[Mapping[str, Callable[[Row], Any]]] = {
    "namespace": lambda row: (row.key.namespace, row.key.name),
    "name": lambda row: (row.key.name, row.key.namespace),
    "state": lambda row: row.state,
    "lag": lambda row: row.lag,
    "rate": lambda row: row.rate,
    "epoch": lambda row: row.epoch,
    "restarts": lambda row: row.restarts,
    "age": lambda row: -row.created_at.timestamp(),
}
COLUMNS: Final = tuple(_ORDERS)
NUMBERS: Final = frozenset({"lag", "rate", "epoch", "restarts"})
_URGENCY: Final = {"bad": 0, "warn": 1, "busy": 2, "good": 3, "idle": 4}


def row_of(body: Json) -> Row:
    """Return the row of a pipeline; what cannot be understood of its status is absent."""
    metadata, status = body["metadata"], read_status(body.get("status"))
    ready = condition_of(status.conditions, "Ready")
    throughput = status.throughput
    return Row(
        key=ObjectKey(metadata["namespace"], metadata["name"]),
        state=status.state.value,
        ready=ready.status if ready else "",
        message=status.message or (ready.message if ready else ""),
        lag=status.lag,
        rate=throughput.records_per_second if throughput else None,
        epoch=status.epoch,
        restarts=status.restarts,
        created_at=datetime.fromisoformat(metadata["creationTimestamp"]),
        is_paused=asks_for_pause((metadata.get("annotations") or {}).get(PAUSED_ANNOTATION)),
    )


def states(rows: Iterable[Row]) -> Mapping[str, int]:
    """Return how many rows have each state, in the order of their names."""
    return dict(sorted(Counter(row.state for row in rows).items()))


def chosen(rows: Iterable[Row], choice: Choice) -> Sequence[Row]:
    """Return the rows that have all words and the state, in order; without an order, the most urgent first."""
    words = choice.words.lower().split()
    found = [row for row in rows if choice.state in {"", row.state} and all(word in _text(row) for word in words)]
    found.sort(key=lambda row: (_URGENCY[row.level], row.key.namespace, row.key.name))
    order = _ORDERS.get(choice.column)
    if order is None:
        return found
    known = [row for row in found if order(row) is not None]
    known.sort(key=order, reverse=choice.is_descending)
    return [*known, *(row for row in found if order(row) is None)]


def _text(row: Row) -> str:
    return f"{row.key} {row.state} {'paused' if row.is_paused else ''} {row.message}".lower()
