"""What every fence table promises: the fence's argument rests on these sentences alone."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable
from dataclasses import replace
from datetime import UTC, datetime
from typing import Final

from fencepost.fence.clock import wall_clock
from fencepost.fence.errors import Fenced, FenceError, FenceUnavailable
from fencepost.fence.history import Change
from fencepost.fence.promises.promise import BrokenPromise, Promise, expect
from fencepost.fence.protocol import Fence, Starting
from fencepost.fence.row import FenceRow
from fencepost.fence.table import FenceTable

RIVALS: Final = 8
"""Drivers that claim one epoch at the same moment."""
COMMITS: Final = 20
"""Commits beside which the row is read."""
PARTITIONS: Final = 1000
"""Kafka partitions of a large pipeline, and entries of a map of its row."""
FARTHEST_CLOCK: Final = 300.0
"""Seconds between two clocks from which on a driver refuses to write."""
_OWNER: Final = "cluster/cr"


def _row(pipeline: str) -> FenceRow:
    return FenceRow(pipeline=pipeline, owner=_OWNER)


def _full(pipeline: str) -> FenceRow:
    return replace(
        _row(pipeline),
        epoch=3,
        driver="pod",
        version=7,
        clock=1_700_000_000_000_000,
        offsets={"a/0": 1, "b.c/11": 2**40},
        planned={"a/0": 2},
        begun={"a/0": 2**34},
        accepted_until={"a/0": 2**35},
        epoch_starts={"a/0": 2**36},
        growths=({"a/0": 2**32, "a/1": 0}, {"a/0": 2**33, "a/1": 7, "a/2": 0}),
        topic_ids={"a": "id"},
        leader_epochs={"a/0": 3},
        growth_barrier={"a/0": 2**33},
        log_ends={"a/0": 5},
        code="image",
        committed_at=datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC),
        records=10,
        duration_ms=12,
        output_token=1_700_000_000_000_001,
        checkpoint=bytes(range(256)),
        planned_log=b"\0",
    )


def _comes_back(table: FenceTable, pipeline: str) -> None:
    expect((found := table.read(pipeline)) is None, "no row before the first insert", found)
    full = _full(pipeline)
    expect(table.insert(full), "an insert that is applied", "a refusal")
    expect((found := table.read(pipeline)) == full, f"the row as it was written, {full}", found)


def _inserted_once(table: FenceTable, pipeline: str) -> None:
    row = _row(pipeline)
    expect(table.insert(row), "a first insert that is applied", "a refusal")
    expect(not table.insert(replace(row, owner="other")), "a second insert that is refused", "that it was applied")
    expect((found := table.read(pipeline)) == row, "the first row", found)


def _stale_is_refused(table: FenceTable, pipeline: str) -> None:
    current = replace(_row(pipeline), epoch=1, version=1, driver="pod")
    table.insert(current)
    for stale in ({"epoch": 2}, {"version": 9}, {"driver": "other"}, {"driver": None}):
        applied = table.swap(replace(current, **stale), replace(current, version=2))
        expect(not applied, f"a refusal where the condition has {stale}", "that it was applied")
        expect((found := table.read(pipeline)) == current, "the row unchanged", found)


def _null_is_compared(table: FenceTable, pipeline: str) -> None:
    row = _row(pipeline)
    table.insert(row)
    mine, theirs = replace(row, driver="me", version=1), replace(row, driver="you", version=1)
    expect(table.swap(row, mine), "an update from no driver that is applied", "a refusal")
    expect(not table.swap(row, theirs), "the same update refused a second time", "that it was applied")
    expect((found := table.read(pipeline)) == mine, "the first driver's row", found)


def _absent_is_not_swapped(table: FenceTable, pipeline: str) -> None:
    row = _row(pipeline)
    expect(not table.swap(row, replace(row, version=1)), "a refusal without a row", "that it was applied")
    expect((found := table.read(pipeline)) is None, "no row", found)


def _all_at_once(work: Callable[[int], None], count: int) -> None:
    """Run `work` on as many threads from one moment on; raise what the first one raises."""
    gate, raised = threading.Barrier(count), list[BaseException]()

    def run(number: int) -> None:
        gate.wait()
        try:
            work(number)
        except BaseException as error:  # noqa: BLE001 - raised again in the caller's thread
            raised.append(error)

    threads = [threading.Thread(target=run, args=(number,)) for number in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if raised:
        raise raised[0]


def _one_claim_wins(table: FenceTable, pipeline: str) -> str:
    fence = Fence(table, pipeline)
    taken = fence.take_over(fence.create(_OWNER), owner=_OWNER)
    winners: list[str] = []

    def claim(number: int) -> None:
        driver = f"pod-{number}"
        try:
            Fence(table, pipeline).claim(epoch=taken.epoch, driver=driver, code="image", start=starting_as_seen)
        except Fenced:
            return
        winners.append(driver)

    _all_at_once(claim, RIVALS)
    seen = table.read(pipeline)
    expect(seen is not None and winners == [seen.driver], "one winner, the driver in the row", f"{winners} and {seen}")
    return f"{RIVALS} claims"


def starting_as_seen(seen: FenceRow) -> Starting:
    """Return a claim that leaves the row's progress as it is."""
    return Starting(offsets=seen.offsets, planned=seen.planned, topic_ids=seen.topic_ids)


def _zombie_is_fenced(table: FenceTable, pipeline: str) -> str:
    fence = Fence(table, pipeline, patience=60)
    taken = fence.take_over(fence.create(_OWNER), owner=_OWNER)
    held = Fence(table, pipeline).claim(epoch=taken.epoch, driver="pod", code="image", start=starting_as_seen)
    ends: list[FenceError] = []
    commits = 0

    def commit() -> None:
        nonlocal commits
        zombie, last = Fence(table, pipeline), held
        try:
            while True:
                last = zombie.commit(last, offsets={"a/0": last.version}, planned={}, records=1, duration_ms=1)
                commits += 1
        except FenceError as error:
            ends.append(error)

    thread = threading.Thread(target=commit)
    thread.start()
    after = fence.take_over_epoch(taken.epoch, owner=_OWNER)
    thread.join()
    expect([type(error) for error in ends] == [Fenced], "a driver that is fenced", ends)
    expect((found := table.read(pipeline)) == after, f"the row of the takeover, {after}", found)
    return f"{commits} commits before it"


def _no_read_goes_back(table: FenceTable, pipeline: str) -> str:
    fence = Fence(table, pipeline, patience=60)
    taken = fence.take_over(fence.create(_OWNER), owner=_OWNER)
    row = fence.claim(epoch=taken.epoch, driver="pod", code="image", start=starting_as_seen)
    reads, acknowledged, is_over = 0, row.version, False

    def work(number: int) -> None:
        nonlocal reads, acknowledged, is_over
        if number == 0:
            try:
                last = row
                for _ in range(COMMITS):
                    ends = {"a/0": last.version + 1}
                    last = fence.commit(last, offsets=ends, planned=ends, records=1, duration_ms=1)
                    acknowledged = last.version
            finally:
                is_over = True
            return
        newest = 0
        while not is_over:
            least = max(newest, acknowledged)
            try:
                seen = table.read(pipeline)
            except FenceUnavailable:
                continue  # no answer contradicts nothing
            if seen is None or seen.version < least or seen.offsets.get("a/0", row.version) != seen.version:
                raise BrokenPromise(f"a whole row of version {least} or later; found {seen}")
            newest, reads = seen.version, reads + 1

    _all_at_once(work, 3)
    return f"{reads} reads beside {COMMITS} commits"


def _large_maps(table: FenceTable, pipeline: str) -> str:
    many = {f"orders/{number}": 2**40 + number for number in range(PARTITIONS)}
    row = replace(_row(pipeline), offsets=many, planned=many, log_ends=many)
    table.insert(row)
    after = replace(row, version=1, offsets={key: end + 1 for key, end in many.items()})
    expect(table.swap(row, after), "an update that is applied", "a refusal")
    found = table.read(pipeline)
    expect(found == after, "each of its offsets", "other ones")
    return f"{PARTITIONS:,} partitions"


def _progress_has_the_stores_time(table: FenceTable, pipeline: str) -> None:
    expect((found := table.read_progress(pipeline)) is None, "no report of progress", found)
    before = table.server_time()
    table.report_progress(pipeline, epoch=2, version=7, done=100)
    table.report_progress(pipeline, epoch=2, version=7, done=250)
    seen = table.read_progress(pipeline)
    if seen is None or (seen.epoch, seen.version, seen.done) != (2, 7, 250):
        raise BrokenPromise(f"the newest report; found {seen}")
    # To the millisecond, the precision of CQL's timestamps. Nodes of one store may differ by as much as clocks do.
    kept = before - 1_000_000 <= seen.at.timestamp() * 1e6 <= table.server_time() + 1_000_000
    expect(kept, "the time of the store in it", seen.at)


def _clocks_agree(table: FenceTable, _pipeline: str) -> str:
    before = wall_clock()
    theirs = table.server_time()
    apart = (theirs - (before + wall_clock()) / 2) / 1e6
    expect(abs(apart) < FARTHEST_CLOCK, f"clocks less than {FARTHEST_CLOCK:.0f} s apart", f"{apart:+.1f} s")
    return f"{apart:+.1f} s from this machine"


def history_is_kept(table: FenceTable, pipeline: str, read: Callable[[], Iterable[Change]]) -> None:
    """Check that the history has each change, as `read` returns it, and none once it is deleted."""
    fence = Fence(table, pipeline)
    taken = fence.take_over(fence.create(_OWNER), owner=_OWNER)
    row = fence.claim(epoch=taken.epoch, driver="pod", code="image", start=starting_as_seen)
    for end in (5, 9):
        row = fence.commit(row, offsets=row.planned, planned={"a/0": end}, records=1, duration_ms=1)
    found = sorted(change.version for change in read())
    expect(found == [*range(row.version + 1)], f"versions 0 to {row.version} in it", found)
    table.forget(pipeline)
    expect(not (left := [*read()]), "no history once it is deleted", left)


PROMISES: Final[tuple[Promise[FenceTable], ...]] = (
    Promise(name="the clock agrees with this machine's", needed_by="write timestamps", check=_clocks_agree),
    Promise(name="a row comes back as it was written", needed_by="each read of the fence", check=_comes_back),
    Promise(name="a row is inserted once", needed_by="two operators that create it", check=_inserted_once),
    Promise(name="a stale condition is refused", needed_by="commits after a takeover", check=_stale_is_refused),
    Promise(name="a condition compares with null", needed_by="claims", check=_null_is_compared),
    Promise(name="a missing row is not updated", needed_by="released pipelines", check=_absent_is_not_swapped),
    Promise(name="of claims at one moment one wins", needed_by="two drivers of one epoch", check=_one_claim_wins),
    Promise(name="a driver that keeps committing is fenced", needed_by="takeovers", check=_zombie_is_fenced),
    Promise(name="no serial read goes back", needed_by="unknown outcomes", check=_no_read_goes_back),
    Promise(name="a row holds a thousand partitions", needed_by="large pipelines", check=_large_maps),
    Promise(
        name="a report of progress has the store's time",
        needed_by="restart.stallTimeout",
        check=_progress_has_the_stores_time,
    ),
)
