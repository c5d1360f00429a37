"""A table that breaks a promise is found by the promise's own check."""

from __future__ import annotations

import time
from dataclasses import dataclass, field, replace

import pytest

from fencepost.fence import FenceError, FenceRow, FenceTable
from fencepost.fence.memory import MemoryFenceTable
from fencepost.fence.promises import BrokenPromise, Promise
from fencepost.fence.promises.table import PROMISES

BY_NAME = {promise.name: promise for promise in PROMISES}


@dataclass(slots=True)
class Broken(MemoryFenceTable):
    """A table in memory with one fault."""

    fault: str = ""
    older: dict[str, FenceRow] = field(default_factory=dict)

    def read(self, pipeline: str) -> FenceRow | None:
        row = super(Broken, self).read(pipeline)
        match self.fault:
            case "loses blobs" if row is not None:
                return replace(row, checkpoint=None)
            case "reads stale rows" if row is not None:
                before = self.older.get(pipeline)
                self.older[pipeline] = row
                return before or row
            case "keeps 64 entries" if row is not None:
                return replace(row, offsets=dict(list(row.offsets.items())[:64]))
        return row

    def insert(self, row: FenceRow) -> bool:
        if self.fault == "overwrites":
            self.rows[row.pipeline] = row
            return True
        return super(Broken, self).insert(row)

    def swap(self, before: FenceRow, after: FenceRow) -> bool:
        seen = self.rows.get(before.pipeline)
        same_epoch = seen is not None and seen.epoch == before.epoch
        is_met = {
            "checks nothing": True,
            "checks the epoch alone": same_epoch,
            "takes null for any driver": same_epoch and before.driver is None,
            "checks, then writes": super(Broken, self)._matches(before),
        }.get(self.fault)
        if is_met is None:
            return super(Broken, self).swap(before, after)
        if self.fault == "checks, then writes":
            time.sleep(0.05)
        if is_met:
            self.rows[after.pipeline] = after
        return is_met


@pytest.mark.parametrize("promise", PROMISES, ids=lambda promise: promise.name.replace(" ", "-"))
def test_the_table_in_memory_keeps_each(promise: Promise[FenceTable]) -> None:
    promise.check(MemoryFenceTable(), "s/n/p")


@pytest.mark.parametrize(
    ("fault", "name"),
    [
        ("loses blobs", "a row comes back as it was written"),
        ("overwrites", "a row is inserted once"),
        ("checks nothing", "a stale condition is refused"),
        ("checks the epoch alone", "a stale condition is refused"),
        ("takes null for any driver", "a condition compares with null"),
        ("checks nothing", "a missing row is not updated"),
        ("checks, then writes", "of claims at one moment one wins"),
        ("reads stale rows", "no serial read goes back"),
        ("keeps 64 entries", "a row holds a thousand partitions"),
    ],
)
def test_a_table_without_it_is_found(fault: str, name: str) -> None:
    with pytest.raises((BrokenPromise, FenceError)):
        BY_NAME[name].check(Broken(fault=fault), "s/n/p")
