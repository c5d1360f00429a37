"""`fencepost fence verify`: the history against itself and the fence row, the sinks against the offsets."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from fencepost.contract import CassandraSink
from fencepost.fence import FenceRow
from fencepost_cli.accepted_loss import AcceptedLoss
from fencepost_cli.history.checks import History, check_in_order
from fencepost_cli.history.reading import in_order, up_to
from fencepost_cli.history.sink_rows import SinkReport, TooWide, collect, compare, partition_key, why_not
from fencepost_cli.ports import Store

REPORT_EVERY = 50_000
"""Rows between two signs of progress."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Verification:
    """What was found. `exact` is what the caller claims: each offset makes exactly one row."""

    row: FenceRow
    history: History
    complete: bool
    """Whether the history reaches back to before the first offset and has every change since."""
    sinks: tuple[SinkReport, ...]
    exact: bool

    @property
    def findings(self) -> list[str]:
        """What is wrong, a sentence each."""
        found = [f"history: {violation}" for violation in self.history.violations]
        for sink in self.sinks:
            for part in sink.partitions:
                where = f"sink {sink.sink}, {part.partition}"
                if part.beyond:
                    found.append(f"{where}: {part.beyond} offsets have rows and were never planned")
                if self.exact and part.missing:
                    found.append(f"{where}: {part.missing} committed offsets have no row")
                if self.exact and part.repeated:
                    found.append(f"{where}: {part.repeated} rows repeat an offset that has one")
        return found


def verify(
    pipeline: str,
    store: Store,
    read_row: Callable[[], FenceRow],
    *,
    sinks: tuple[CassandraSink, ...],
    topics: tuple[str, ...],
    exact: bool,
    most_rows: int,
    show_progress: Callable[[str], None],
) -> Verification:
    """Read the row, its history, the sinks, and the row again. Raises CliError.

    A table of more than `most_rows` rows is not compared.
    """
    before, accepted = read_row(), store.accepted()
    story = _Story(accepted)
    history = check_in_order(
        story.observed(up_to((row for _, row in in_order(pipeline, store.changes)), before), before, show_progress),
        counts_records=False,
        accepted=accepted,
    )
    if story.differs:
        history = _with(history, story.differs)
    reader = _Reader(store, topics, before, read_row, most_rows, show_progress)
    found = tuple(reader.report(sink, story.starts, accepted) for sink in sinks)
    return Verification(
        row=before,
        history=history,
        complete=story.begins_empty and not history.gaps,
        sinks=found,
        exact=exact,
    )


class _Story:
    """Remembers of the changes that pass what the later checks need.

    `starts` are the offsets with which partitions came into the row, of those whose coming is on record, or with which
    the pipeline continued in a topic that was replaced.
    """

    def __init__(self, accepted: Iterable[AcceptedLoss]) -> None:
        self._replaced = [loss for loss in accepted if loss.is_replaced]
        self.begins_empty = False
        self.starts: dict[str, int] = {}
        self.differs: str | None = None

    def observed(
        self, rows: Iterator[FenceRow], current: FenceRow, show_progress: Callable[[str], None]
    ) -> Iterator[FenceRow]:
        """Yield the changes, and record what the checks need to know about them."""
        last: FenceRow | None = None
        for count, row in enumerate(rows):
            if last is None:
                self.begins_empty = not row.offsets
            elif row.version == last.version + 1:
                self.starts |= {key: row.offsets[key] for key in row.offsets.keys() - last.offsets.keys()}
            if last is not None:
                self.starts |= self._begun_again(last, row)
            last = row
            if row.version == current.version and not row.is_held_as(current):
                self.differs = f"version {row.version}: the fence row is not what the history recorded"
            if count % REPORT_EVERY == 0:
                show_progress(f"{count:,} changes")
            yield row

    def _begun_again(self, last: FenceRow, row: FenceRow) -> dict[str, int]:
        """Return the offsets with which the pipeline continued in topics that were replaced."""
        return {
            loss.partition: row.offsets[loss.partition]
            for loss in self._replaced
            if last.offsets.get(loss.partition) == loss.start
            and row.offsets.get(loss.partition, loss.start) != loss.start
            and row.driver != last.driver
            and dict(row.topic_ids) != dict(last.topic_ids)
        }


@dataclass(frozen=True, slots=True)
class _Reader:
    """Reads the sinks' tables."""

    store: Store
    topics: tuple[str, ...]
    before: FenceRow
    read_row: Callable[[], FenceRow]
    most_rows: int
    show_progress: Callable[[str], None]

    def report(self, sink: CassandraSink, starts: Mapping[str, int], accepted: Sequence[AcceptedLoss]) -> SinkReport:
        """Return what one sink came to. Raises CliError."""
        table = f"{sink.keyspace}.{sink.table}"
        columns = self.store.columns(sink.keyspace, sink.table)
        if reason := why_not(columns):
            return SinkReport(sink=sink.name, table=table, skipped=reason)
        positions = self.store.positions(sink.keyspace, sink.table, partition_key(columns))
        try:
            offsets, others = collect(self._counted(positions, table), self.topics)
        except TooWide as error:
            return SinkReport(sink=sink.name, table=table, skipped=str(error))
        counts = compare(offsets, starts=starts, before=self.before, after=self.read_row(), accepted=accepted)
        return SinkReport(sink=sink.name, table=table, partitions=counts, other_rows=others)

    def _counted(self, positions: Iterable[tuple[str, int, int]], table: str) -> Iterator[tuple[str, int, int]]:
        for count, position in enumerate(positions):
            if count == self.most_rows:
                raise TooWide(f"it has more than {count:,} rows; --max-rows reads more")
            if count % REPORT_EVERY == 0:
                self.show_progress(f"{count:,} rows of {table}")
            yield position


def _with(history: History, violation: str) -> History:
    return History(
        **{name: getattr(history, name) for name in History.__dataclass_fields__ if name != "violations"},
        violations=(*history.violations, violation),
    )
