"""What differs between the examples that can be played: their records, and how their output is accounted for."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from demo.scene import Scene
from flights.dataset import Events, flights
from flights.history import HistoryRow
from flights.ledger import Ledger
from flights.reconciliation import reconcile


class Account(Protocol):
    """How the output compares with the input."""

    @property
    def ok(self) -> bool:
        """Whether all is as it has to be."""
        ...

    def lines(self) -> list[str]:
        """For a human."""
        ...


class Example(Protocol):
    """One of `examples/`."""

    @property
    def folder(self) -> str:
        """Its place in `examples/`."""
        ...

    @property
    def records(self) -> str:
        """What its records are, in the plural."""
        ...

    @property
    def feed(self) -> Events:
        """The records."""
        ...

    @property
    def amount(self) -> int:
        """How many records are played."""
        ...

    @property
    def rate(self) -> float:
        """Records per second, after the backlog."""
        ...

    @property
    def comparison(self) -> str:
        """What is compared at the end."""
        ...

    @property
    def promise(self) -> str:
        """What holds where the account is right."""
        ...

    def account(self, scene: Scene, ledger: Ledger, history: Sequence[HistoryRow]) -> Account:
        """Compare what is there, once all that was produced is committed."""
        ...


@dataclass(frozen=True, slots=True)
class Departures:
    """Flights, one row for each."""

    folder: str = "departures"
    records: str = "flights"
    rate: float = 4_000
    comparison: str = "every row of the table against every record that was produced"
    promise: str = "every flight is there once"

    @property
    def amount(self) -> int:
        """The year's 336,776."""
        return len(flights())

    @property
    def feed(self) -> Events:
        """The flights of 2013, and then those of later years."""
        return flights()

    def account(self, scene: Scene, ledger: Ledger, history: Sequence[HistoryRow]) -> Account:
        """Compare each row with its flight, and its write with its commit."""
        return reconcile(scene.cassandra, scene.tables[0], ledger, history=history)
