"""A stateful pipeline whose table and state are compared with a plain recomputation from Kafka's log."""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Final

from e2e.stream import Stream, cassandra
from fencepost.fence import FenceRow
from fencepost_cli.history.checks import check_history
from flights.history import read_history
from harness.faults.cluster_faults import Faults
from harness.kafka_log import Record, read_log
from harness.stored_state import batch_watermark, state_rows
from harness.waiting import eventually
from present import present

SHOWN: Final = 5
"""Keys that a difference names."""

Entry = tuple[Hashable, object]
"""A row by its key."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Recomputed:
    """What a log makes: rows and state by key, once the watermark has followed the newest record.

    `late` records are older than any watermark, and count nowhere.
    """

    rows: Mapping[Hashable, object]
    state: Mapping[Hashable, object]
    watermark: datetime
    late: int = 0


@dataclass(slots=True)
class Compared:
    """A pipeline, how a log is recomputed, and how rows of its table and of its state are read."""

    stream: Stream
    recompute: Callable[[Sequence[Record]], Recomputed]
    of_table: Callable[[Any], Entry]
    of_state: Callable[[Any], Entry]
    reads: int = 1
    """How often a record may have been in a committed batch: once more after each rewind."""
    left_out: set[tuple[int, int]] = field(default_factory=set)
    """Partition and offset of each record that a user has let the pipeline leave out: the ledger has none of them."""

    def successor(self, row: FenceRow, *, seconds: float = 240) -> FenceRow:
        """Wait until a run of a later epoch has committed; return the fence row."""
        now = row
        while now.epoch == row.epoch:
            now = self.stream.commits_past(now, seconds=seconds)
        return self.stream.commits_past(now, seconds=seconds)  # an epoch begins at the offsets of the one before

    def kill_drivers(self, faults: Faults, times: int) -> None:
        """SIGKILL all of a driver's processes at random moments under load, each time after a successor's commits."""
        stream = self.stream
        with stream.load.flowing():
            row = present(stream.fence())
            for _ in range(times):
                stream.commits_past(row)
                time.sleep(random.random() * 2)
                before = present(stream.fence())
                faults.sigkill(stream.pipeline.driver())
                stream.kills += 1
                row = self.successor(before)

    def check(self) -> FenceRow:
        """Compare every row of the table and the whole state with Kafka's log, once all of it is committed.

        To be called while nothing is produced. Return the fence row.
        """
        stream, place = self.stream, self.stream.place
        expected = self.recompute(self.log())
        row = eventually(f"{stream.pipeline.name} commits everything", lambda: self._settled(expected), seconds=240)
        with cassandra(place) as opened:
            rows = list(opened.execute(f"SELECT * FROM {place.tables}.{stream.table}"))  # noqa: S608
            state = state_rows(opened, place.fences, row)
            story = check_history(read_history(opened, place.fences, stream.key))
        check_equal("the table", list(map(self.of_table, rows)), expected.rows)
        check_equal("the state", list(map(self.of_state, state)), expected.state)
        assert rows and state, "nothing was compared"  # noqa: PT018 - one reason
        assert story.ok, "\n".join(story.lines())
        assert story.gaps <= stream.kills
        assert min(expected.late, 1) <= row.late_rows <= expected.late * self.reads
        return row

    def log(self) -> list[Record]:
        """Return Kafka's log without what is left out. To be called while nothing is produced."""
        load = self.stream.load
        found = read_log(load.bootstrap, load.ledger.topic)
        kept = [record for record in found if (record.partition, record.offset) not in self.left_out]
        assert len(kept) == len(load.ledger) == len(found) - len(self.left_out)
        return kept

    def _settled(self, expected: Recomputed) -> FenceRow | None:
        """Return the row once it has all records, and the batch without records that the last watermark causes."""
        row, ends = self.stream.fence(), self.stream.load.ends()
        if row is None or {key: row.offsets.get(key) for key in ends} != ends:
            return None
        watermark = batch_watermark(row)
        assert watermark is None or watermark <= expected.watermark
        return row if watermark == expected.watermark else None


def check_equal(what: str, entries: Sequence[Entry], expected: Mapping[Hashable, object]) -> None:
    """Assert that the entries are those that are expected, each once."""
    found = dict(entries)
    assert len(found) == len(entries), f"{what} has a key twice"
    keys = [key for key in found.keys() | expected.keys() if found.get(key) != expected.get(key)]
    shown = "; ".join(f"{key}: {found.get(key)}, expected {expected.get(key)}" for key in keys[:SHOWN])
    assert not keys, f"{len(keys)} rows of {what} differ: {shown}"
