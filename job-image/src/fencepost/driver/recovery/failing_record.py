"""Which record of a batch fails alone, where nothing of the batch may be committed before all of it: a search by trial.

A stateful batch is not cut into pieces that are committed one by one, as `fencepost.driver.recovery.poison` does.  Here
each piece is only rehearsed, without the state, and nothing is written.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import islice

from fencepost.batch import Range
from fencepost.contract import record_place
from fencepost.driver.recovery.bisection import WITNESSES, Bisection, Piece
from fencepost.errors import DriverError, PoisonRecord, suspects_record

REMEDY = "Make the code drop or fix such a record, or leave it out with `fencepost dead-letters skip`."


def failing_record(batch: Piece, rehearse: Callable[[Piece], int]) -> PoisonRecord | None:
    """Return the error of the first record that fails alone, another one passes, and it fails alone again.

    None where no record does, or every record: then the state or the code is the cause.  `rehearse` returns how many
    records it has tried.  Raises the DriverError of a rehearsal that no record is to blame for.
    """
    if not batch:  # a timer failed, or a window that closes
        return None
    bisection, passed = Bisection(batch), 0
    while (piece := bisection.piece) is not None:
        found = _tried(piece, rehearse)
        if isinstance(found, int):
            passed += found
        elif (suspect := bisection.failed()) is None:
            continue
        elif not passed and not any(_passes(other, rehearse) for other in _others(suspect, batch)):
            return None
        else:
            again = _tried((suspect,), rehearse)
            return None if isinstance(again, int) else _poison(suspect, again)
        bisection.done()
    return None


def _tried(piece: Piece, rehearse: Callable[[Piece], int]) -> int | DriverError:
    try:
        return rehearse(piece)
    except DriverError as error:
        if not suspects_record(error):
            raise
        return error


def _passes(piece: Piece, rehearse: Callable[[Piece], int]) -> bool:
    found = _tried(piece, rehearse)
    return isinstance(found, int) and found > 0


def _others(suspect: Range, batch: Piece) -> Iterator[Piece]:
    """Yield single records of the batch beside one, WITNESSES at most."""
    singles = (
        (part.beside(offset, offset + 1),)
        for part in batch
        for offset in range(part.start, part.until)
        if (part.key, offset) != (suspect.key, suspect.start)
    )
    return islice(singles, WITNESSES)


def _poison(suspect: Range, error: DriverError) -> PoisonRecord:
    return PoisonRecord(
        f"{record_place(suspect.key, suspect.start)} fails each time it is tried alone and without the state, while"
        f" other records pass: {error.message}",
        remedy=REMEDY,
        record=(suspect.key, suspect.start),
    )
