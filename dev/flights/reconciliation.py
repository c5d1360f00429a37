"""Is every event that was produced in the sink, once, and right?

A table keyed by (topic, partition, offset) hides most doubles: written twice, a row is still one row.  So four things
are looked for, each one alone enough to fail:

- a row at coordinates where nothing was produced, or an event at more of them than it was produced to (doubled);
- coordinates without a row (missing);
- a row whose values are not what plain Python makes of its event (wrong);
- a row whose last write is not of the batch that committed its offset (stray): every write carries as its timestamp,
  `USING TIMESTAMP clock + 1`, the clock of the fence row that its batch began on: in `fence_changes`, the change before
  that batch's commit.
  So a batch that was written twice, once by a driver that was replaced, shows unless the committed one won.
"""

import math
from array import array
from bisect import bisect_right
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, date, datetime
from typing import Any, Final, Self

from fencepost_cli.history.checks import Change
from flights.dataset import Feed, feed
from flights.expectation import Cell, Expectation, of_feed
from flights.history import commits
from flights.ledger import Ledger
from flights.sink import Table, rows

SAMPLES: Final = 5
"""Findings of one kind that a report shows."""
COORDINATES: Final = ("topic", "partition", "offset")


@dataclass(frozen=True, slots=True, kw_only=True)
class Report:
    """The comparison. All but `samples` count rows; `found` those of produced coordinates."""

    produced: int
    found: int
    missing: int
    doubled: int
    wrong: int
    stray: int
    traced: int
    """Rows whose write could be held against a commit; the others' commits are not on record."""
    samples: tuple[str, ...] = ()

    @property
    def ok(self) -> bool:
        """Whether each event is there, once, right, and written by the batch that committed it."""
        return self.missing == self.doubled == self.wrong == self.stray == 0

    def lines(self) -> list[str]:
        """For a human."""
        counts = (
            ("produced", self.produced),
            ("found", self.found),
            ("missing", self.missing),
            ("doubled", self.doubled),
            ("wrong", self.wrong),
            ("stray writes", self.stray),
        )
        width = max(len(f"{count:,}") for _, count in counts)
        return [*(f"{name:<14}{count:>{width},}" for name, count in counts), *self.samples]


@dataclass(frozen=True, slots=True)
class Writers:
    """For each partition, which timestamp wrote which offsets: [from, until) of every commit on record, ascending.

    What was committed again after a rewind has the timestamp of the last time.
    """

    spans: Mapping[str, Sequence[tuple[int, int, int]]] = field(default_factory=dict)

    @classmethod
    def of(cls, history: Iterable[Change]) -> Self:
        """Read the commits of a history."""
        spans: dict[str, list[tuple[int, int, int]]] = {}
        for before, commit in commits(history):
            for key, until in commit.offsets.items():
                first = before.offsets.get(key, 0)
                if until > first:
                    known = spans.setdefault(key, [])
                    while known and known[-1][0] >= first:
                        known.pop()
                    if known and known[-1][1] > first:
                        known[-1] = (known[-1][0], first, known[-1][2])
                    known.append((first, until, before.clock + 1))
        return cls(spans)

    def timestamp(self, key: str, offset: int) -> int | None:
        """The write timestamp of the batch that committed the offset; None when it is not on record."""
        spans = self.spans.get(key, ())
        place = bisect_right(spans, offset, key=lambda span: span[0]) - 1
        if place < 0:
            return None
        first, until, timestamp = spans[place]
        return timestamp if first <= offset < until else None


@dataclass(slots=True)
class Reconciliation:
    """Compares the rows of one sink with the ledger of its topic, one row at a time."""

    ledger: Ledger
    feed: Feed
    expectation: Expectation
    writers: Writers = field(default_factory=Writers)
    _found: int = field(init=False, default=0)
    _doubled: int = field(init=False, default=0)
    _wrong: int = field(init=False, default=0)
    _stray: int = field(init=False, default=0)
    _traced: int = field(init=False, default=0)
    _seen: dict[int, bytearray] = field(init=False, default_factory=dict)
    """By partition, a mark for each offset that a row was found at."""
    _appearances: "array[int]" = field(init=False)
    """By event, rows found less places produced to."""
    _samples: dict[str, list[str]] = field(init=False, default_factory=dict)

    _expected: tuple[str, ...] = field(init=False)

    def __post_init__(self) -> None:
        self._expected = tuple(self.expectation(self.feed.event(0)))
        self._appearances = array("b", bytes(self.ledger.next_number))
        self._seen = {partition: bytearray(end) for partition, end in self.ledger.ends.items()}
        for _, _, number in self.ledger:
            self._appearances[number] -= 1

    @property
    def columns(self) -> list[str]:
        """What has to be read, in the order in which `row` takes it."""
        return [*COORDINATES, *self._expected, "WRITETIME(id)"]

    def row(self, values: Sequence[Any]) -> None:
        """Take one row of the sink: the values of `columns`."""
        topic, partition, offset, *cells, written_at = values
        place = f"{topic}/{partition}@{offset}"
        number = self.ledger.number_at(partition, offset) if topic == self.ledger.topic else None
        if number is None:
            self._doubled += 1
            self._sample("doubled", f"{place} was never produced")
            return
        if self._seen[partition][offset]:
            self._doubled += 1
            self._sample("doubled", f"{place} is there twice")
            return
        self._seen[partition][offset] = 1
        self._found += 1
        self._compare(place, number, cells)
        expected = self.writers.timestamp(f"{topic}/{partition}", offset)
        self._traced += expected is not None
        if expected is not None and written_at != expected:
            self._stray += 1
            self._sample("stray", f"{place} was written at {written_at}, the batch that was committed at {expected}")

    def report(self) -> Report:
        """The result for all rows."""
        missing = 0
        for partition, offset, number in self.ledger:
            if not self._seen[partition][offset]:
                missing += 1
                self._sample("missing", f"{self.ledger.topic}/{partition}@{offset}, event {number}")
        return Report(
            produced=len(self.ledger),
            found=self._found,
            missing=missing,
            doubled=self._doubled + sum(surplus for surplus in self._appearances if surplus > 0),
            wrong=self._wrong,
            stray=self._stray,
            traced=self._traced,
            samples=tuple(f"{kind}: {text}" for kind, texts in self._samples.items() for text in texts),
        )

    def _compare(self, place: str, number: int, cells: Sequence[Any]) -> None:
        expected = self.expectation(self.feed.event(number))
        found = dict(zip(self._expected, cells, strict=True))
        said = found["id"]
        if isinstance(said, int) and 0 <= said < len(self._appearances):
            self._appearances[said] += 1
        unlike = [column for column, value in expected.items() if not _same(found[column], value)]
        if unlike:
            self._wrong += 1
            differences = ", ".join(f"{column} {found[column]!r} for {expected[column]!r}" for column in unlike)
            self._sample("wrong", f"{place}, event {number}: {differences}")

    def _sample(self, kind: str, text: str) -> None:
        texts = self._samples.setdefault(kind, [])
        if len(texts) < SAMPLES:
            texts.append(text)


def reconcile(
    session: Any,
    table: Table,
    ledger: Ledger,
    *,
    history: Iterable[Change] = (),
    expectation: Expectation | None = None,
) -> Report:
    """Read the table and compare every row with what was produced.

    `session` is of `sink.session`; `history` the pipeline's changes, to hold each row's write against its commit;
    `expectation` defaults to that of the ledger's feed.
    """
    comparison = Reconciliation(ledger, feed(ledger.feed), expectation or of_feed(ledger.feed), Writers.of(history))
    for values in rows(session, table, comparison.columns):
        comparison.row(values)
    return comparison.report()


def _same(found: Any, expected: Cell) -> bool:
    """Whether Cassandra's value is the expected one; the driver gives timestamps without a zone, in UTC."""
    if isinstance(found, datetime) and isinstance(expected, datetime):
        return found.replace(tzinfo=UTC) == expected
    if type(expected) is date:
        return found is not None and bool(found.date() == expected)
    if isinstance(found, float) and isinstance(expected, float):
        return math.isclose(found, expected, rel_tol=1e-12, abs_tol=1e-12)
    return bool(found == expected)
