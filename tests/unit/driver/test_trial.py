"""A trial in memory: what it reads, what it does about records that fail, and what it measures."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

import pytest

from fencepost.batch import Batch, Watermarks, Written
from fencepost.contract.trial import LIMIT, SAMPLES, Sample, SinkFindings, TrialReport
from fencepost.driver.trial.processes import Processes
from fencepost.driver.trial.ranges import Reach, Reading, reach
from fencepost.driver.trial.trying import ALL_FAIL, MOST_POISON, Trying
from fencepost.errors import BatchFailed, DriverError, RecordFailed
from fencepost.fence import FenceRow


def log(**begins: int) -> Watermarks:
    return Watermarks(begins={f"t/{key[1:]}": at for key, at in begins.items()}, ends={}, topic_ids={})


def test_records_that_kafka_has_deleted_are_left_out_and_counted() -> None:
    left, lost = reach({"t/0": 5, "t/1": 0}, {"t/0": 20, "t/1": 10, "t/2": 4}, log(p0=8, p1=0, p2=1))
    assert left == Reach({"t/0": 8, "t/1": 0, "t/2": 1}, {"t/0": 20, "t/1": 10, "t/2": 4})
    assert (left.records, lost) == (12 + 10 + 3, 3)


def test_a_log_that_begins_after_the_end_leaves_nothing() -> None:
    left, lost = reach({"t/0": 5}, {"t/0": 20}, log(p0=100))
    assert (left.records, lost) == (0, 15)


def test_each_record_is_read_once_and_partitions_of_a_topic_that_grew_come_last() -> None:
    reading = Reading(
        Reach({"t/0": 0, "t/1": 3, "t/2": 0}, {"t/0": 5, "t/1": 9, "t/2": 4}),
        grown=frozenset({"t/2"}),
        topic_ids={"t": "id"},
    )
    seen: list[tuple[str, int]] = []
    while (batch := reading.next(4)) is not None:
        assert all(part.topic_id == "id" for part in batch.ranges)
        seen += [(part.key, at) for part in batch.ranges for at in range(part.start, part.until)]
    assert sorted(seen) == [*(("t/0", at) for at in range(5)), *(("t/1", at) for at in range(3, 9))] + [
        ("t/2", at) for at in range(4)
    ]
    assert min(seen.index(("t/2", at)) for at in range(4)) > max(seen.index(("t/0", 4)), seen.index(("t/1", 8)))
    assert reading.done == 15
    assert dict(reading.ranges()) == {"t/0": (0, 5), "t/1": (3, 9), "t/2": (0, 4)}


@dataclass
class World:
    """New code that fails for some offsets, and what was taken of its findings."""

    poison: frozenset[int] = frozenset()
    error: DriverError = field(default_factory=lambda: RecordFailed("cannot parse"))
    folder: Path = Path("unused")
    tokens: list[int] = field(default_factory=list)
    passed: list[int] = field(default_factory=list)
    taken: list[int] = field(default_factory=list)
    limit: int = 1000

    def write(self, batch: Batch, row: FenceRow) -> Written:
        self.tokens.append(row.write_timestamp)
        (self.folder / str(row.write_timestamp)).mkdir(parents=True)
        offsets = [at for part in batch.ranges for at in range(part.start, part.until)]
        if self.poison.intersection(offsets):
            raise self.error
        self.passed += offsets
        return Written({}, records=len(offsets))

    def take(self, folder: Path, batch: int) -> None:
        assert folder.is_dir()
        self.taken.append(batch)

    @property
    def records(self) -> int:
        return self.limit

    def measure(self, batch: Batch, written: Written, *, seconds: float) -> None: ...


def trying(world: World, folder: Path, records: int, *, ends_after: int = 10**9) -> Trying:
    world.folder = folder
    moments = iter(range(10**9))
    return Trying(
        pipeline="s/ns/n",
        engine=world,
        findings=world,
        reading=Reading(Reach({"t/0": 0}, {"t/0": records}), grown=frozenset(), topic_ids={}),
        limit=world,
        folder=folder,
        is_over=lambda: next(moments) >= ends_after,
        now=lambda: 0.0,
        report=lambda _done: None,
    )


def test_a_record_that_fails_alone_is_a_finding_and_all_others_are_compared(tmp_path: Path) -> None:
    world = World(poison=frozenset({17, 40}))
    one = trying(world, tmp_path, 64)
    one.run()
    assert (one.poison.count, one.poison.first, one.poison.error) == (2, "t/0@17", "cannot parse")
    assert sorted(world.passed) == [at for at in range(64) if at not in world.poison]
    assert one.note == ""
    assert len(set(world.tokens)) == len(world.tokens)  # each attempt has a folder of its own
    assert world.taken == sorted(world.taken)
    assert list(tmp_path.iterdir()) == []


def test_code_that_fails_for_every_record_ends_the_trial(tmp_path: Path) -> None:
    world = World(poison=frozenset(range(64)))
    with pytest.raises(RecordFailed, match=f"each of {ALL_FAIL} records"):
        trying(world, tmp_path, 64).run()
    assert world.taken == []


def test_an_outage_is_no_finding(tmp_path: Path) -> None:
    world = World(poison=frozenset({3}), error=BatchFailed("out of sorts"))
    with pytest.raises(BatchFailed, match="out of sorts"):
        trying(world, tmp_path, 64).run()


def test_very_many_records_that_fail_end_the_trial_with_what_it_has(tmp_path: Path) -> None:
    world = World(poison=frozenset(range(1, 2000, 2)), limit=10)
    one = trying(world, tmp_path, 2000)
    one.run()
    assert one.poison.count == MOST_POISON
    assert f"{MOST_POISON} records" in one.note


def test_a_trial_ends_at_its_time_with_what_it_has(tmp_path: Path) -> None:
    world = World(limit=10)
    one = trying(world, tmp_path, 1000, ends_after=3)
    one.run()
    assert "limits.maxDuration" in one.note
    assert one.reading.done == 30


def test_a_report_fits_into_a_termination_message_whatever_it_holds() -> None:
    samples = tuple(
        Sample(sink="rows", kind=kind, key="k" * 200, columns="c" * 200)
        for kind in ("Changed", "Missing", "Added")
        for _ in range(SAMPLES)
    )
    sinks = tuple(SinkFindings(name=f"sink-{number}", message="m" * 900) for number in range(20))
    report = TrialReport(
        records=1, total=1, seconds=1.0, sinks=sinks, samples=samples, note="ü" * 900, poison=1,
        first_poison="t/0@5", poison_error="e" * 900,
    )  # fmt: skip
    text = report.to_json()
    assert len(text.encode()) <= LIMIT
    found = TrialReport.from_json(text)
    assert found is not None
    assert (found.records, found.poison) == (1, 1)


def test_a_report_without_room_for_each_sink_is_not_complete() -> None:
    sinks = tuple(SinkFindings(name=f"{number:0100}", changed=1) for number in range(40))
    found = TrialReport.from_json(TrialReport(records=1, total=1, seconds=1.0, sinks=sinks).to_json())
    assert found is not None
    assert len(found.sinks) < 40
    assert not found.is_complete


def test_samples_that_fit_are_shared_between_the_kinds() -> None:
    samples = tuple(
        Sample(sink="rows", kind=kind, key=f"{number:0150}")
        for kind in ("Changed", "Missing", "Added")
        for number in range(SAMPLES)
    )
    found = TrialReport.from_json(TrialReport(records=1, total=1, seconds=1.0, samples=samples).to_json())
    assert found is not None
    counts = [sum(sample.kind == kind for sample in found.samples) for kind in ("Changed", "Missing", "Added")]
    assert min(counts) >= 3
    assert max(counts) - min(counts) <= 1


@pytest.mark.parametrize(
    "text",
    [
        "", "{}", "[]", "null",
        '{"records": -1, "total": 1, "seconds": 1}', '{"records": "1", "total": 1, "seconds": 1}',
        '{"records": 1, "total": 1, "seconds": 1, "sinks": [{"name": "' + "x" * 101 + '"}]}',
        '{"records": 1, "total": 1, "seconds": 1, "samples": [{"sink": "a", "kind": "Other", "key": "k"}]}',
        "[" * 5000, '{"records": 1, "total": 1, "seconds": 1}' + " " * LIMIT,
    ],
)  # fmt: skip
def test_what_is_no_report_is_none(text: str) -> None:
    """The pod runs the author's code, which can write anything there."""
    assert TrialReport.from_json(text) is None


def process(proc: Path, number: int, parent: int, *, name: str = "java", ticks: int = 0, pages: int = 0) -> None:
    folder = proc / str(number)
    folder.mkdir(exist_ok=True)
    numbers = ["0"] * 9
    (folder / "stat").write_text(f"{number} ({name}) S {parent} {' '.join(numbers)} {ticks} 0 0 0 20 0")
    (folder / "statm").write_text(f"{pages} {pages} 0 0 0 0 0")


def test_memory_and_cpu_are_of_the_driver_the_jvm_and_all_that_it_started(tmp_path: Path) -> None:
    process(tmp_path, 1, 0, name="python", pages=10)
    process(tmp_path, 7, 1, pages=100)
    process(tmp_path, 8, 7, name="a ) S 1 (", pages=20)
    process(tmp_path, 9, 8, name="python", pages=20)
    process(tmp_path, 20, 1, name="other", pages=5000)
    (tmp_path / "self").mkdir()
    found = Processes(7, proc=tmp_path, driver=1)
    found.look(0.0)
    process(tmp_path, 7, 1, ticks=200, pages=50)
    found.look(1.0)
    driver, jvm, workers = found.figures()
    page = jvm.peak_memory // 100
    assert (driver.peak_memory, jvm.peak_memory, workers.peak_memory) == (10 * page, 100 * page, 40 * page)
    assert jvm.cpu_seconds == jvm.peak_cpu > 0
    assert workers.cpu_seconds == 0
