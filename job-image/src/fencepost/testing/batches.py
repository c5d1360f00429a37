"""Test a transform: its rows, and whether they depend on anything but the records."""

from __future__ import annotations

import pickle
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any, Final, NamedTuple, TypeAlias

from fencepost.context import takes_record_batches
from fencepost.testing.cuts import check_cuts
from fencepost.testing.disturbances import hash_seeds
from fencepost.testing.disturbances.authors_modules import disturbed
from fencepost.testing.disturbances.current_time import asks_for_the_time
from fencepost.testing.rows import Keys, Table, listed
from fencepost.testing.runs import (
    ONLY_SINK,
    BatchRuns,
    Record,
    Rows,
    by_partition,
    coordinates,
    in_order,
    spans,
    written,
)

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from fencepost.context import RecordTransform, Transform

SHOWN: Final = 3
"""Records of the input in a message."""

Tables: TypeAlias = dict[str, Table]


class _Play(NamedTuple):
    """Runs records in another way, which must leave the same tables as the usual one."""

    cause: str
    tables: Callable[[Sequence[Record]], Tables]


@dataclass(frozen=True, slots=True)
class BatchTest:
    """A transform under test, of DataFrames or of record batches; the latter needs no `spark`.

    `states` are what `context.state` returns, by the name of an entry of `spec.source.pinnedStates`.
    """

    spark: SparkSession | None
    transform: Transform | RecordTransform
    _: KW_ONLY
    args: tuple[str, ...] = ()
    states: Mapping[str, DataFrame] = field(default_factory=dict)

    def rows(self, records: Sequence[Record]) -> dict[str, list[dict[str, Any]]]:
        """Return the rows of one batch by sink; those of a single sink are under 'rows'.

        `records` are as for `fencepost.testing.frame`.
        """
        return {sink or "rows": rows for sink, rows in self._runs.rows(in_order(records)).items()}

    def assert_deterministic(self, records: Sequence[Record], *, keys: Keys = None, seed: int = 0) -> None:
        """Run `records` in all the ways in which a cluster may run them, and compare what the tables hold.

        The ways: the same batch again, alone and over the rows of the first attempt; with the clock of the function's
        modules 400 days ahead; with other hash seeds; with the partitions read in another order, each of them in two
        parts; and cut into several batches, at places that `seed` decides. `keys` are as for `check_cuts`.

        Raises AssertionError with the cause, the fewest records that show it, and the rows that differ.
        """
        ordered = in_order(records)
        whole = self._usual(ordered, keys)
        for play in self._plays(keys):
            if play.tables(ordered) != whole:
                raise AssertionError(self._difference(play, self._fewest(play, ordered, keys), keys))
        self._check_the_plan(ordered)
        check_cuts(self.spark, self.transform, records, keys=keys, args=self.args, states=self.states, seed=seed)

    @property
    def _runs(self) -> BatchRuns:
        return BatchRuns(self.spark, self.transform, self.args, self.states)

    def _usual(self, records: Sequence[Record], keys: Keys) -> Tables:
        return self._runs.tables([records], keys)

    def _plays(self, keys: Keys) -> Iterator[_Play]:
        yield _Play(
            "what changes from one attempt to the next: the time, random numbers, counters",
            lambda records: self._usual(records, keys),
        )
        yield _Play(
            "what an earlier attempt of the batch has written: its rows have other keys",
            lambda records: self._runs.tables([records, records], keys),
        )
        yield _Play("the clock", lambda records: written([self._later(records)], keys))
        for seed in hash_seeds.SEEDS:
            yield _Play("Python's hash seed: on hash(), or on the order of a set", partial(self._seeded, seed, keys))
        yield _Play(
            "the order in which tasks read the records",
            lambda records: self._usual(_reordered(records), keys),
        )

    def _later(self, records: Sequence[Record]) -> Rows:
        """Return the rows with the clock ahead, in Python workers too where Spark can send the modules there."""
        try:
            with disturbed(self.transform):
                return self._runs.rows(records)
        except pickle.PicklingError:
            with disturbed(self.transform, by_value=False):
                return self._runs.rows(records)

    def _seeded(self, seed: int, keys: Keys, records: Sequence[Record]) -> Tables:
        """Return the tables with another seed: of Spark's Python workers, or of a process for record batches."""
        if self.spark is None or takes_record_batches(self.transform):
            rows = partial(BatchRuns(None, self.transform, self.args).rows, records)
            return written([hash_seeds.called_with_seed(seed, rows, self.transform)], keys)
        with hash_seeds.of_workers(self.spark, seed, self.transform):
            return self._usual(records, keys)

    def _check_the_plan(self, records: Sequence[Record]) -> None:
        """Find functions of Spark that answer what day it is: it is the same day in each attempt of a test."""
        if takes_record_batches(self.transform):
            return
        for sink, frame in self._runs.frames(records).items():
            if asks_for_the_time(frame):
                raise AssertionError(
                    f"the output{_of(sink)} depends on the clock: its plan has a function such as current_date() or"
                    " now(). Take the time from the record"
                )

    def _fewest(self, play: _Play, records: Sequence[Record], keys: Keys) -> Sequence[Record]:
        """Return a part of the records for which a play still gives other tables, by halves."""
        middle = len(records) // 2
        for half in (records[:middle], records[middle:]) if middle else ():
            if play.tables(half) != self._usual(half, keys):
                return self._fewest(play, half, keys)
        return records

    def _difference(self, play: _Play, records: Sequence[Record], keys: Keys) -> str:
        whole, found = self._usual(records, keys), play.tables(records)
        lines = [f"the output depends on {play.cause}", *_shown(records)]
        for sink in sorted({*whole, *found}):
            one, other = set(whole.get(sink, {}).values()), set(found.get(sink, {}).values())
            lines += listed(f"only at first{_of(sink)}", one - other)
            lines += listed(f"only afterwards{_of(sink)}", other - one)
        return "\n  ".join(lines)


def _of(sink: str) -> str:
    return "" if sink == ONLY_SINK else f" for sink {sink!r}"


def _shown(records: Sequence[Record]) -> Iterator[str]:
    yield "input: " + ", ".join(f"{key} [{start}, {end})" for key, (start, end) in spans(records).items())
    for record in records[:SHOWN]:
        topic, partition, offset = coordinates(record)
        yield f"{topic}/{partition}@{offset}: key {record.get('key')!r}, value {record.get('value')!r}"


def _reordered(records: Sequence[Record]) -> list[Record]:
    """Return the records as tasks may read them: the last partition first, and of each the second half first."""
    return [
        record
        for part in reversed(by_partition(records))
        for half in (part[len(part) // 2 :], part[: len(part) // 2])
        for record in half
    ]
