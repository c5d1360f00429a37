"""Records that fail alone, with everything in memory: they are set aside exactly, whatever dies at whichever step."""

from __future__ import annotations

import sys
import threading
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any, ClassVar, cast

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fencepost.batch import Batch, Range, Record, SinkWork, Written
from fencepost.driver.loop import Loop
from fencepost.driver.recovery.poison import LETTERS_AT_ONCE, PASSED_PER_LETTER, Isolator
from fencepost.errors import DependencyDown, DriverError, OutOfMemory, PoisonRecord, RecordFailed
from fencepost.fence import Fence, Fenced, FenceRow
from present import present
from unit.driver.loop_world import Crash, FakeEngine, FakeLog, FakeRecords, World, config

Place = tuple[str, int]
Step = Callable[[str], None]


def nothing(_step: str) -> None:
    """Let every step pass."""


@dataclass
class PoisonousEngine(FakeEngine):
    """Writes what comes before a poison record, as tasks do, and fails there; `step` sees each attempt."""

    poison: set[Place] = field(default_factory=set)
    step: Step = nothing

    def write(self, batch: Batch, row: FenceRow) -> Written:
        self.step("write")
        for part in batch.ranges:
            for offset in range(part.start, part.until):
                self._check(part.key, offset)
                self.store.put(part.key, offset, row.write_timestamp, "")
        self.step("written")
        self.batches.append(batch)
        return Written({"s": SinkWork(batch.records)})

    def rehearse(self, batch: Batch) -> None:
        self.step("rehearse")
        for part in batch.ranges:
            self._check(part.key, part.start)

    def _check(self, key: str, offset: int) -> None:
        if (key, offset) in self.poison:
            raise RecordFailed(f"{key}@{offset} is bad")


@dataclass
class FakeLetters:
    """Where they go: by place, so that a repetition overwrites."""

    kept: dict[Place, str] = field(default_factory=dict)
    step: Step = nothing

    def write(self, record: Record, part: Range, error: DriverError, row: FenceRow) -> None:
        assert row.planned[part.key] == record.offset + 1
        self.step("letter")
        self.kept[part.key, record.offset] = error.message
        self.step("lettered")

    def remove_uncommitted(self, row: FenceRow) -> None:
        """Forget the letters of what is read again."""
        self.step("removing")
        self.kept = {(key, at): why for (key, at), why in self.kept.items() if at < row.offsets.get(key, 0)}
        self.step("removed")


@dataclass
class Scene:
    """A pipeline across its isolating runs."""

    world: World = field(default_factory=World)
    letters: FakeLetters | None = field(default_factory=FakeLetters)
    poison: set[Place] = field(default_factory=set)

    def loop(self, *, step: Step = nothing, limit: int = 10, isolate: bool = True) -> tuple[Loop, PoisonousEngine]:
        engine = PoisonousEngine(self.world.store, poison=self.poison, step=step)
        if self.letters is not None:
            self.letters.step = step
        stop, waits = threading.Event(), Counter[str]()

        def wait(_seconds: float) -> None:
            waits["n"] += 1
            if waits["n"] >= 3:
                stop.set()

        records = FakeRecords(self.world.log, step)
        isolator = Isolator(
            engine=engine, source=self.world.log, records=records, letters=self.letters, stopping=stop.is_set
        )
        epoch = self.world.take_over()
        loop = Loop(
            config=config(epoch, limit=limit),
            driver=f"pod-{epoch}",
            fence=self.world.fence(),
            source=self.world.log,
            records=records,
            engine=engine,
            stop=stop,
            report=self.world.reports.append,
            isolator=isolator if isolate else None,
            claimed=(self.letters or FakeLetters()).remove_uncommitted,
            now=lambda: waits["n"] / 1000,
            wait=wait,
            look_ahead=30.0,
        )
        return loop, engine

    def run(self, **changes: Any) -> None:
        """Run until the loop is idle."""
        self.loop(**changes)[0].run()

    def assert_complete(self) -> None:
        """Each record is in the sink, except the poison, which is in the letters; the commits are in order."""
        every = {(key, offset) for key, end in self.world.log.ends.items() for offset in range(end)}
        assert set(self.world.store.cells) == every - self.poison
        assert set(present(self.letters).kept) == self.poison
        assert self.world.row().offsets == self.world.log.ends
        self.assert_in_order()

    def rows_that_no_end_covers(self) -> set[Place]:
        """Rows beyond everything that the fence row names."""
        row = self.world.row()
        ends = {**row.offsets, **row.written_until}
        return {(key, offset) for key, offset in self.world.store.cells if offset >= ends.get(key, 0)}

    def assert_in_order(self) -> None:
        rows = self.world.table.history
        for before, after in pairwise(rows):
            assert all(after.offsets.get(key, 0) >= offset for key, offset in before.offsets.items())
            moved = {key: end for key, end in after.offsets.items() if before.offsets.get(key) != end}
            if after.driver is not None and before.driver is not None and moved:
                assert all(before.planned[key] == end for key, end in moved.items())


POISON = {("t/0", 3), ("t/0", 4), ("t/1", 0), ("t/1", 19)}


def test_poison_is_set_aside_and_everything_else_is_written() -> None:
    scene = Scene(poison=POISON)
    scene.run()
    scene.assert_complete()
    row = scene.world.row()
    assert (row.dead_letters, row.last_dead_letter) == (4, "t/1@19")
    reported = [report.dead_letter for report in scene.world.reports if report.dead_letter]
    assert reported == ["t/0@3", "t/0@4", "t/1@0", "t/1@19"]
    assert present(scene.letters).kept["t/0", 3] == "t/0@3 is bad"


@dataclass
class RefusingEngine(PoisonousEngine):
    """Its sink's server refuses the first record until another one is written; `tried` has what each version wrote."""

    has_written: bool = False
    tried: ClassVar[dict[int, list[Batch]]] = {}

    def write(self, batch: Batch, row: FenceRow) -> Written:
        self.tried.setdefault(row.version, []).append(batch)
        written = super().write(batch, row)
        self.has_written = True
        return written

    def rehearse(self, batch: Batch) -> None:
        """Reach no server."""

    def _check(self, key: str, offset: int) -> None:
        if (key, offset) == ("t/0", 0) and not self.has_written:
            raise PoisonRecord("refused")


def test_what_is_committed_was_written_at_a_version_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    """Found: a late task of a witness could replace what the suspect's had staged for the same commit."""
    committed, commit = list[int](), Fence.commit
    RefusingEngine.tried.clear()

    def noting(self: Fence, before: FenceRow, **given: Any) -> FenceRow:
        committed.append(before.version)
        return commit(self, before, **given)

    monkeypatch.setattr(Fence, "commit", noting)
    monkeypatch.setattr(sys.modules[__name__], "PoisonousEngine", RefusingEngine)
    scene = Scene()
    scene.run()
    scene.assert_complete()
    assert any(len(batches) > 1 for batches in RefusingEngine.tried.values()), "a witness was written"
    assert all(len(RefusingEngine.tried[version]) == 1 for version in committed)


def test_without_isolation_the_batch_fails_as_a_whole() -> None:
    scene = Scene(poison=POISON)
    loop, _ = scene.loop(isolate=False)
    with pytest.raises(RecordFailed):
        loop.run()
    assert scene.world.row().offsets == {"t/0": 0, "t/1": 0}


def test_the_run_stops_at_the_first_poison_record_and_names_it() -> None:
    scene = Scene(poison=POISON, letters=None)
    loop, _ = scene.loop()
    with pytest.raises(PoisonRecord, match=r"t/0@3 fails each time it is tried alone") as caught:
        loop.run()
    assert caught.value.record == ("t/0", 3)
    assert "spec.onPoison.action" in caught.value.remedy
    assert scene.world.row().offsets == {"t/0": 3, "t/1": 0}
    assert scene.world.row().dead_letters == 0


def test_code_that_fails_for_every_record_sets_nothing_aside() -> None:
    scene = Scene()
    scene.poison = {(key, offset) for key, end in scene.world.log.ends.items() for offset in range(end)}
    loop, _ = scene.loop()
    with pytest.raises(
        RecordFailed, match=r"t/0@0 fails alone, and none of the 8 others that were tried could be written"
    ):
        loop.run()
    assert present(scene.letters).kept == {}
    assert sum(scene.world.row().offsets.values()) == 0


def test_the_only_record_cannot_be_distinguished_from_failing_code() -> None:
    scene = Scene(world=World(log=FakeLog(ends={"t/0": 1})), poison={("t/0", 0)})
    loop, _ = scene.loop()
    with pytest.raises(RecordFailed, match="no other record is left to compare"):
        loop.run()
    scene.world.log.ends["t/0"] = 2
    scene.run()
    scene.assert_complete()


def test_a_record_that_passes_when_it_is_tried_again_is_not_poison() -> None:
    scene = Scene(poison={("t/0", 3)})
    steps = Counter[str]()

    def recover(step: str) -> None:
        steps[step] += 1
        if step == "rehearse":
            scene.poison.clear()

    scene.run(step=recover)
    scene.assert_complete()
    assert steps["rehearse"] == 1


@pytest.mark.parametrize("error", [DependencyDown("Kafka is down"), OutOfMemory("no memory")], ids=["outage", "memory"])
def test_another_failure_during_an_isolation_is_not_poison(error: DriverError) -> None:
    """It happens at each step in turn; the run ends with that error, and the next run continues."""
    at = 0
    while True:
        scene = Scene(poison={("t/0", 3), ("t/1", 2)})
        steps = Counter[str]()

        def fail(_step: str, at: int = at, steps: Counter[str] = steps) -> None:
            steps["n"] += 1
            if steps["n"] == at + 1:
                raise error

        loop, _ = scene.loop(step=fail)
        with suppress(type(error)):
            loop.run()
            break
        assert set(present(scene.letters).kept) <= scene.poison
        scene.assert_in_order()
        scene.run()
        scene.assert_complete()
        at += 1
    assert at > 20


def only_swaps(step: Step) -> Step:
    """Pass the fence's changes on to a step."""
    return lambda call: step(call) if call == "swap" else None


@settings(max_examples=60, deadline=None)
@given(
    st.sets(st.tuples(st.sampled_from(["t/0", "t/1"]), st.integers(0, 19)), max_size=3),
    st.lists(st.integers(1, 60), max_size=3),
    st.sampled_from([7, 10, 100]),
)
def test_killed_at_any_step_the_successor_continues_and_nothing_is_lost_or_doubled(
    poison: set[Place], deaths: list[int], limit: int
) -> None:
    scene = Scene(poison=poison)
    for death in deaths:
        steps = Counter[str]()

        def die(_step: str, death: int = death, steps: Counter[str] = steps) -> None:
            steps["n"] += 1
            if steps["n"] == death:
                raise Crash

        loop, _ = scene.loop(step=die, limit=limit)
        scene.world.table.before = scene.world.table.after = only_swaps(die)
        with suppress(Crash):
            loop.run()
        scene.world.table.before = scene.world.table.after = nothing
    scene.run(limit=limit)
    scene.assert_complete()


def test_each_piece_is_in_progress_from_its_own_start_on() -> None:
    scene = Scene(poison={("t/0", 3)})
    loop, engine = scene.loop()
    clock, shown = Counter[str](), list[Batch]()

    def written(step: str) -> None:
        if step == "written":
            clock["s"] += 2
            shown.append(loop.hand)

    engine.step, loop._now = written, lambda: clock["s"]
    loop.run()
    assert shown == engine.batches
    reports = [report for report in scene.world.reports if report.dead_letter is None]
    assert len(reports) > 5, "four batches passed whole, and one in pieces"
    assert {report.phases["total"] for report in reports} == {2000}


def test_the_batch_after_an_isolation_has_what_came_meanwhile() -> None:
    scene = Scene(world=World(log=FakeLog(ends={"t/0": 12})), poison={("t/0", 3)})
    log, looked = scene.world.log, threading.Event()

    def look() -> None:
        if log.looks == 3:  # after the claim: beside the batch, and for a witness
            looked.set()

    def arrive(step: str) -> None:
        if step == "letter":
            assert looked.wait(5)
            log.ends["t/0"] = 22

    log.fault = look

    loop, engine = scene.loop(step=arrive)
    loop.run()
    assert [batch.records for batch in engine.batches[-2:]] == [10, 2]


def test_a_stop_ends_an_isolation_between_two_pieces() -> None:
    scene = Scene(poison={("t/0", 3)})
    loop, engine = scene.loop()
    engine.step = lambda step: loop._stop.set() if step == "written" else None
    loop.run()
    assert scene.world.row().offsets == {"t/0": 2, "t/1": 0}
    scene.run()
    scene.assert_complete()


@pytest.mark.parametrize("at", ["write", "written", "rehearse", "read", "letter", "lettered"])
def test_a_run_that_is_replaced_commits_nothing_more(at: str) -> None:
    scene = Scene(poison={("t/0", 3)})
    done: list[dict[str, int]] = []

    def replace_it(step: str) -> None:
        if step == at and not done:
            scene.world.take_over()
            done.append(dict(scene.world.row().offsets))

    loop, _ = scene.loop(step=replace_it)
    with pytest.raises(Fenced):
        loop.run()
    assert scene.world.row().offsets == done[0]
    scene.run()
    scene.assert_complete()


def test_many_bad_records_in_a_row_are_no_matter_of_single_records() -> None:
    scene = Scene(world=World(log=FakeLog(ends={"t/0": 400})))
    scene.poison = {("t/0", offset) for offset in range(10, 300)}
    loop, _ = scene.loop(limit=400)
    with pytest.raises(PoisonRecord, match="as many records as it may") as caught:
        loop.run()
    assert caught.value.record == ("t/0", 110), "the pipeline waits for the user there; a new run would set 100 aside"
    assert len(present(scene.letters).kept) == LETTERS_AT_ONCE == scene.world.row().dead_letters


def test_one_bad_record_in_each_batch_never_stops_the_pipeline() -> None:
    """Found: no batch passed whole, and the pipeline was Stalled after 100 letters."""
    scene = Scene(world=World(log=FakeLog(ends={"t/0": 4_000})))
    scene.poison = {("t/0", offset) for offset in range(7, 4_000, 20)}
    scene.run(limit=20)
    scene.assert_complete()
    assert scene.world.row().dead_letters == 200


def test_more_bad_records_than_one_in_ten_that_pass_stop_the_pipeline_whatever_the_batches_are() -> None:
    """A third of the records is bad, and every second batch passes whole."""
    scene = Scene(world=World(log=FakeLog(ends={"t/0": 800})))
    scene.poison = {("t/0", offset) for offset in range(800) if offset % 20 >= 13}
    loop, _ = scene.loop(limit=10)
    with pytest.raises(PoisonRecord, match="100 and 1 more for each 10 that pass"):
        loop.run()
    row = scene.world.row()
    passed = row.offsets["t/0"] - row.dead_letters
    assert LETTERS_AT_ONCE < row.dead_letters <= LETTERS_AT_ONCE + passed // PASSED_PER_LETTER


def test_batches_that_pass_whole_allow_as_many_letters_as_before() -> None:
    scene = Scene(world=World(log=FakeLog(ends={"t/0": 1_400})))
    scene.poison = {("t/0", offset) for offset in (*range(10, 110), *range(1_200, 1_300))}
    scene.run(limit=100)
    scene.assert_complete()


def test_good_records_are_saved_up_for_no_more_letters_than_at_the_start() -> None:
    scene = Scene(world=World(log=FakeLog(ends={"t/0": 3_000})))
    scene.poison = {("t/0", offset) for offset in range(2_000, 3_000, 2)}
    loop, _ = scene.loop(limit=500)
    with pytest.raises(PoisonRecord):
        loop.run()
    assert LETTERS_AT_ONCE <= scene.world.row().dead_letters <= LETTERS_AT_ONCE + 500 // PASSED_PER_LETTER


@pytest.mark.parametrize("at", ["letter", "lettered"])
def test_a_record_that_corrected_code_writes_leaves_no_letter(at: str) -> None:
    """Found: the letter of a run that died before its commit stayed, and a retry of it doubled the record's row."""
    scene = Scene(poison={("t/0", 7)})

    def die(step: str) -> None:
        if step == at:
            raise Crash

    loop, _ = scene.loop(step=die)
    with suppress(Crash):
        loop.run()
    scene.poison.clear()
    scene.run(isolate=False)
    scene.assert_complete()


def test_what_a_rewind_reads_again_has_no_letter_when_it_passes() -> None:
    scene = Scene(poison={("t/0", 3), ("t/0", 17)})
    scene.run()
    fence = scene.world.fence()
    scene.world.take_over()
    fence.rewind(scene.world.row(), offsets={"t/0": 10, "t/1": 20}, leader_epochs={}, growth_barrier={})
    scene.poison.clear()
    scene.run(isolate=False)
    assert set(present(scene.letters).kept) == {("t/0", 3)}, "its record is before the rewind's offsets"
    assert ("t/0", 17) in scene.world.store.cells
    assert scene.world.row().offsets == scene.world.log.ends


def test_a_stop_between_two_pieces_keeps_the_end_of_the_whole_batch() -> None:
    """Found: the rows of the failed attempt lay beyond every end in the fence row, and new code doubled them."""
    scene = Scene(world=World(log=FakeLog(ends={"t/0": 40})), poison={("t/0", 19)})
    loop, engine = scene.loop()
    written = Counter[str]()

    def stop_after_the_first_piece(step: str) -> None:
        written[step] += 1
        if written["written"] == 2:
            loop._stop.set()

    engine.step = stop_after_the_first_piece
    loop.run()
    row = scene.world.row()
    assert (row.offsets, row.planned, row.begun) == ({"t/0": 15}, {"t/0": 15}, {"t/0": 20})
    assert scene.rows_that_no_end_covers() == set()


def test_a_run_that_ends_at_a_poison_record_keeps_the_end_of_the_whole_batch() -> None:
    scene = Scene(world=World(log=FakeLog(ends={"t/0": 40})), letters=None, poison={("t/0", 15), ("t/0", 19)})
    loop, engine = scene.loop()

    def in_parallel(step: str) -> None:
        if step == "write" and not engine.store.cells.get(("t/0", 18)) and engine.batches:
            for offset in (16, 17, 18):  # another task writes the second half of the whole batch
                engine.store.put("t/0", offset, scene.world.row().write_timestamp, "")

    engine.step = in_parallel
    with pytest.raises(PoisonRecord):
        loop.run()
    assert scene.rows_that_no_end_covers() == set()


def test_what_was_begun_is_forgotten_once_it_is_committed() -> None:
    scene = Scene(poison=POISON)
    scene.run()
    assert any(row.begun for row in scene.world.table.history)
    assert scene.world.row().begun == {}


@pytest.mark.parametrize("limit", [10, 1])
@pytest.mark.parametrize("committed", [0, 5])
def test_a_server_that_refuses_every_row_sets_no_record_aside(limit: int, committed: int) -> None:
    """Each record passes its rehearsal, which reaches no server, so good records were set aside."""
    scene = Scene(world=World(log=FakeLog(ends={"t/0": committed, "t/1": 0})))
    scene.run(isolate=False)
    scene.world.log.ends = {"t/0": 30, "t/1": 20}
    loop, engine = scene.loop(limit=limit)
    refused: list[Batch] = []

    def refuse(batch: Batch, row: FenceRow) -> Written:
        assert all(part.until <= {**row.planned, **row.written_until}[part.key] for part in batch.ranges)
        refused.append(batch)
        raise PoisonRecord("the server refuses the row")

    engine.write = refuse  # type: ignore[method-assign]
    with pytest.raises(RecordFailed, match="could be written"):
        loop.run()
    assert not present(scene.letters).kept
    assert scene.world.row().offsets == {"t/0": committed, "t/1": 0}
    assert len(refused) > 2
    scene.run(limit=limit)
    scene.assert_complete()


@dataclass
class FilteringEngine(PoisonousEngine):
    """Its transform lets a few records pass; `refused` are those that the server refuses."""

    passing: set[Place] = field(default_factory=set)
    refused: set[Place] = field(default_factory=set)

    def write(self, batch: Batch, row: FenceRow) -> Written:
        rows = 0
        for part in batch.ranges:
            for offset in range(part.start, part.until):
                self._check(part.key, offset)
                if (part.key, offset) in self.refused:
                    raise PoisonRecord(f"{part.key}@{offset} is refused")
                if (part.key, offset) in self.passing:
                    self.store.put(part.key, offset, row.write_timestamp, "")
                    rows += 1
        return Written({"s": SinkWork(rows)})


@pytest.mark.parametrize("where", ["transform", "server"])
@pytest.mark.parametrize(
    ("bad", "passing"),
    [(("t/0", 1), ("t/1", 4)), (("t/1", 4), ("t/0", 2)), (("t/0", 1), ("t/0", 17)), (("t/0", 0), ("t/1", 14))],
    ids=["later in the batch", "before it in the batch", "in a later batch", "at the end of a later batch"],
)
def test_a_filter_that_lets_few_records_pass_leaves_no_batch_that_fails_forever(
    where: str, bad: Place, passing: Place
) -> None:
    """Of the eight single witnesses none may have a row."""
    scene = Scene(poison={bad} if where == "transform" else set())
    loop, engine = scene.loop()
    engine.__class__ = FilteringEngine
    filtering = cast(FilteringEngine, engine)
    filtering.passing, filtering.refused = {passing}, {bad} if where == "server" else set()
    loop.run()
    assert set(scene.world.store.cells) == {passing}
    assert set(present(scene.letters).kept) == {bad}
    assert scene.world.row().offsets == scene.world.log.ends
    assert scene.world.row().written_until == {}
