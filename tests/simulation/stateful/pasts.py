"""What the states of a history are made of, and on which of them each record was last read: what output has to be."""

from __future__ import annotations

from dataclasses import dataclass, field

from fencepost.fence import EMPTY, FenceRow
from fencepost.spark.stateful.stream_source import end_of
from fencepost.state.progress import unpack_committed
from present import present
from simulation.stateful import job
from simulation.stateful.job import Ends, Past, Record, Row, ends_of


@dataclass(slots=True)
class Pasts:
    """Sees each change of the fence row. `poison` fails until it is left out, so no state has it."""

    poison: frozenset[Record]
    claimed: dict[str, Past] = field(default_factory=dict)
    """By driver."""
    _states: dict[bytes, tuple[Past, Ends]] = field(init=False)
    """By checkpoint, with where the last batch ended; EMPTY is the newest empty state."""
    _continued: dict[bytes, set[Ends]] = field(default_factory=dict)
    """Where rows with a checkpoint may be: behind its last batch, or where a claim has moved on from there."""
    _stretches: list[list[tuple[int, Past]]] = field(init=False)
    """Of each partition, from which offset on records were last read on which state."""

    def __post_init__(self) -> None:
        began = Past((0, 0), self.poison)
        self._states = {EMPTY: (began, (0, 0))}
        self._stretches = [[(0, began)] for _ in job.KEYS]

    def of(self, row: FenceRow) -> Past:
        """Return what the state of a row is made of."""
        past, end = self._states[row.checkpoint or EMPTY]
        return past.beyond(end, ends_of(row.offsets))

    def is_of_state(self, row: FenceRow) -> bool:
        """Return whether the offsets of a row are those of its state."""
        return ends_of(row.offsets) in self._continued.get(row.checkpoint or EMPTY, {ends_of(row.offsets)})

    def claim(self, before: FenceRow, after: FenceRow) -> None:
        """A driver claims the row, and may move the offsets past what is lost."""
        old, new = self.of(before), self.of(after)
        self.claimed[str(after.driver)] = new
        if after.checkpoint in self._continued:
            self._continued[after.checkpoint].add(ends_of(after.offsets))
        if new != old:
            for stretches in self._stretches:
                stretches[:] = [(start, new if past == old else past) for start, past in stretches]

    def commit(self, before: FenceRow, after: FenceRow) -> None:
        """A batch is committed with its state."""
        done, checkpoint = present(unpack_committed(after.checkpoint)), present(after.checkpoint)
        log, start = ends_of(end_of(done.offset_logs[done.batch])), ends_of(before.offsets)
        end = max(log[0], start[0]), max(log[1], start[1])  # what was planned may be lost
        self._states[checkpoint] = self.of(before), end
        self._continued[checkpoint] = {end}

    def rewind(self, after: FenceRow) -> None:
        """The row goes back to a state."""
        ends = ends_of(after.offsets)
        if unpack_committed(after.checkpoint) is None:
            self._states[EMPTY] = Past(ends, self.poison), ends
        past = self.of(after)
        for end, stretches in zip(ends, self._stretches, strict=True):
            stretches[:] = [*(each for each in stretches if each[0] < end), (end, past)]

    def differing(self, row: FenceRow, rows: dict[Row, int], end: Ends, watermark: int) -> list[Row]:
        """Return the rows that are not those of an undisturbed run, each record by the state that it was last read on.

        Of windows that began before the newest state did, nothing: earlier states may have closed them.  Of what was
        lost there may be rows: a batch can have written them that was not committed.
        """
        past = self.of(row)
        wanted = dict(job.expected_rows(past, end, watermark))
        for _, partition, offset in [key for key in wanted if key[0] == "total"]:
            del wanted["total", partition, offset]
        for partition in range(len(job.KEYS)):
            for offset in range(end[partition]):
                read = self._read_on(partition, offset)
                value = job.expected_rows(read, end, watermark).get(("total", partition, offset))
                if value is not None:
                    wanted["total", partition, offset] = value
        return sorted(
            key
            for key in rows.keys() | wanted.keys()
            if rows.get(key) != wanted.get(key)
            and (key[0] == "total" or is_later(key[2], past.origin))
            and not (key not in wanted and self._is_of_lost(key, past))
        )

    def _is_of_lost(self, row: Row, newest: Past) -> bool:
        """Return whether a row is of a record that was lost, or of a window with such a record."""
        kind, partition, place = row
        if kind == "total":
            return (partition, place) in self._read_on(partition, place).unread - self.poison
        return any(offset // job.WINDOW == place for _, offset in newest.unread - self.poison)

    def _read_on(self, partition: int, offset: int) -> Past:
        return [past for start, past in self._stretches[partition] if start <= offset][-1]


def is_later(window: int, origin: Ends) -> bool:
    """Return whether a window has no record before these ends."""
    return window * job.WINDOW >= max(origin)
