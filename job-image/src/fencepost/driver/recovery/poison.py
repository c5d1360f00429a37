"""A batch that fails for what is in its records is cut down to the records that fail alone.

A record is poison when it fails alone, another record passes after that, and it fails alone again.  So neither code
that fails for every record nor an outage makes records poison: whatever else goes wrong meanwhile ends the run as
itself.  The other record, the witness, must get as far as the one that fails: where that fails only at a sink's server,
a row of another one must be stored there.  Every piece is recorded at the fence before it is written, and committed in
order.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from dataclasses import replace
from itertools import chain
from typing import Final, Protocol

from fencepost.batch import Batch, Range, Written, between
from fencepost.contract import record_place
from fencepost.driver.ports import Engine, Letters, Log, Records
from fencepost.driver.recovery.bisection import Bisection, Piece, following, witnesses
from fencepost.errors import DataLoss, DriverError, PoisonRecord, RecordFailed, suspects_record
from fencepost.fence import FenceRow

log = logging.getLogger(__name__)

LETTERS_AT_ONCE: Final = 100
"""Records that a run sets aside in a row."""
PASSED_PER_LETTER: Final = 10
"""Records that have to pass for each further one that is set aside."""


class Steps(Protocol):
    """What the loop does with a piece of a batch at the fence."""

    @property
    def row(self) -> FenceRow:
        """The fence row as last changed by this run."""
        ...

    def begin(self, piece: Piece) -> Batch:
        """Record the piece as the planned batch, and return it."""
        ...

    @property
    def may_reach_further(self) -> bool:
        """Whether this run may begin more than the batch that failed."""
        ...

    def commit(self, part: Batch, written: Written, *, dead_letter: str | None = None) -> None:
        """Move the offsets past the piece; `dead_letter` is its one record when that was set aside."""
        ...


class Allowance:
    """How many records may be set aside: LETTERS_AT_ONCE, and 1 more for each PASSED_PER_LETTER that pass.

    What passes restores the allowance and never raises it above the start: a long good past does not excuse a producer
    or code that fails from now on.
    """

    def __init__(self) -> None:
        self._passed = self._most = LETTERS_AT_ONCE * PASSED_PER_LETTER

    @property
    def is_used_up(self) -> bool:
        """Whether no record may be set aside now."""
        return self._passed < PASSED_PER_LETTER

    def passed(self, records: int) -> None:
        """Count records that were written."""
        self._passed = min(self._most, self._passed + records)

    def set_aside(self) -> None:
        """Count one record that was set aside."""
        self._passed -= PASSED_PER_LETTER


class Isolator:
    """Isolates the failing records of a run's batches; without `letters` the first one ends the run."""

    def __init__(
        self, *, engine: Engine, source: Log, records: Records, letters: Letters | None, stopping: Callable[[], bool]
    ) -> None:
        self._engine = engine
        self._source = source
        self._records = records
        self._letters = letters
        self._stopping = stopping
        self._allowance = Allowance()
        self._has_stored = False
        """Whether a row of the batch that is isolated reached the sinks' servers."""

    def passed(self, batch: Batch) -> None:
        """Count a batch that was written without a failure."""
        self._allowance.passed(batch.records)

    def isolate(self, batch: Batch, error: DriverError, steps: Steps) -> None:
        """Write and commit all of a batch that failed with `error`, but for the records that are set aside.

        A stop ends it between two pieces.  Raises PoisonRecord with the record when it is not to be set aside,
        RecordFailed when it may be the code that fails, and whatever else goes wrong.
        """
        log.warning("the batch failed: looking for the record", extra={"fields": {"error": error.message}})
        bisection, self._has_stored = Bisection(batch.ranges), False
        while (piece := bisection.piece) is not None and not self._stopping():
            part = steps.begin(piece)
            try:
                written = self._engine.write(part, steps.row)
            except DriverError as failure:
                if not suspects_record(failure):
                    raise
                suspect = bisection.failed()
                if suspect is None:
                    continue
                self._again(part, suspect, batch.ranges, steps)
            else:
                self._has_stored |= _stored(written)
                steps.commit(part, written)
                self.passed(part)
            bisection.done()

    def _again(self, part: Batch, suspect: Range, batch: Sequence[Range], steps: Steps) -> None:
        """Try a record that failed alone once more, after another one has passed; set it aside if it fails again."""
        row = steps.row
        by_writing = not self._has_stored and not self._fails_unwritten(part)
        self._find_witness(suspect, batch, steps, by_writing=by_writing)
        if by_writing or steps.row is not row:  # what a late task of the witness stages is of another version
            part = steps.begin((suspect,))
        try:
            written = self._engine.write(part, steps.row)
        except DriverError as failure:
            if not suspects_record(failure):
                raise
            self._letter(suspect, failure, steps.row)
            steps.commit(part, Written({}), dead_letter=record_place(suspect.key, suspect.start))
        else:
            steps.commit(part, written)
            self.passed(part)

    def _fails_unwritten(self, part: Batch) -> bool:
        """Return whether a record fails before anything of it reaches a sink's server."""
        try:
            self._engine.rehearse(part)
        except DriverError as failure:
            if not suspects_record(failure):
                raise
            return True
        return False

    def _find_witness(self, suspect: Range, batch: Sequence[Range], steps: Steps, *, by_writing: bool) -> None:
        """Return once another record passes: its rehearsal, or `by_writing` a row of it. Raises RecordFailed else."""
        log = self._source.state()
        # A transform may let few records pass, so that no single one has a row.
        stretches = chain((_rest(suspect, batch, steps.row),), following(batch, log)) if by_writing else ()
        for stretch in stretches:
            if stretch and self._written(stretch, steps) is None:
                break
            if self._has_stored:
                return
        tried: set[tuple[str, int]] = set()
        for window in witnesses(suspect, batch, log):
            try:
                record = self._records.first(window)
                if record is None or (window.key, record.offset) in tried:
                    continue
                tried.add((window.key, record.offset))
                one = window.beside(record.offset, record.offset + 1)
                if self._stores(one, steps) if by_writing else self._is_rehearsed(one):
                    return
            except DataLoss:
                continue  # retention may delete what is committed while we look at it
        others = (
            f"none of the {len(tried)} others that were tried could be written"
            if tried
            else "no other record is left to compare"
        )
        raise RecordFailed(
            f"{record_place(suspect.key, suspect.start)} fails alone, and {others}",
            remedy="Correct the transform: it may fail for every record. Nothing was set aside.",
        )

    def _is_rehearsed(self, one: Range) -> bool:
        """Return whether a record passes without being written. Raises DriverError."""
        try:
            self._engine.rehearse(between({one.key: one.start}, {one.key: one.until}))
        except DriverError as failure:
            if not suspects_record(failure):
                raise
            return False
        return True

    def _stores(self, one: Range, steps: Steps) -> bool:
        """Return whether a record that is not committed is written, and has a row. Raises DriverError."""
        is_open = one.start >= steps.row.offsets[one.key]
        return is_open and self._written((one,), steps) is not None and self._has_stored

    def _written(self, parts: Piece, steps: Steps) -> Written | None:
        """Write records that are not committed, as a witness; None where they fail. Raises DriverError.

        They are written again in their turn; their end is at the fence before the first row.
        """
        row = steps.row
        ends = row.written_until
        further = [part for part in parts if part.until > ends.get(part.key, 0)]
        if further and not steps.may_reach_further:
            return None
        if further:
            steps.begin(tuple(replace(part, start=row.offsets[part.key]) for part in further))
        try:
            written = self._engine.write(_batch(parts), steps.row)
        except DriverError as failure:
            if not suspects_record(failure):
                raise
            return None
        self._has_stored |= _stored(written)
        return written

    def _letter(self, suspect: Range, error: DriverError, row: FenceRow) -> None:
        """Store the record, before the offsets move past it. Raises PoisonRecord when it is not to be set aside."""
        place = record_place(suspect.key, suspect.start)
        if self._letters is None:
            raise PoisonRecord(
                f"{place} fails each time it is tried alone, while other records pass: {error.message}",
                remedy=STOP_REMEDY,
                record=(suspect.key, suspect.start),
            ) from error
        if self._allowance.is_used_up:
            # Not as a failed run: its successor would set as many aside, and so on through the log.
            raise PoisonRecord(
                f"{place} fails alone, and this run set aside as many records as it may, {LETTERS_AT_ONCE} and 1 more"
                f" for each {PASSED_PER_LETTER} that pass: {error.message}",
                remedy=MANY_REMEDY,
                record=(suspect.key, suspect.start),
            ) from error
        record = self._records.first(suspect)
        if record is None:
            raise RecordFailed(f"{place} holds no record, and its batch fails: {error.message}") from error
        self._letters.write(record, suspect, error, row)
        self._allowance.set_aside()
        log.warning("a record is set aside", extra={"fields": {"record": place, "error": error.message}})


def _rest(suspect: Range, batch: Sequence[Range], row: FenceRow) -> Piece:
    """Return what of a batch is not committed, without the record that fails."""
    starts = {**row.offsets, suspect.key: suspect.until}
    left = (part.beside(max(part.start, starts[part.key]), part.until) for part in batch)
    return tuple(part for part in left if part.records > 0)


def _batch(parts: Piece) -> Batch:
    return between({part.key: part.start for part in parts}, {part.key: part.until for part in parts})


def _stored(written: Written) -> bool:
    return any(work.rows for work in written.work.values())


STOP_REMEDY: Final = (
    "Make the transform drop or fix such a record, or set spec.onPoison.action to deadLetter, which sets it aside, or"
    " leave it out with `fencepost dead-letters skip`."
)
MANY_REMEDY: Final = (
    "Correct the transform, the table, or what produces these records; each retry sets as many aside again."
)
