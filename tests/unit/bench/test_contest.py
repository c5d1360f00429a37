"""What the benchmarks make of logs, cgroups and histories, without a testbed."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Self

import pytest

from bench import cpu
from bench.__main__ import main
from bench.contest import ContestError, Mark, Run, collected, driver_mark, span
from bench.costs import growth, memtables, peers
from bench.delays.latency import latencies
from bench.options import Journal, Options
from fencepost.fence import FenceRow
from fencepost.fence.cassandra.table import CassandraFenceTable
from flights.console import Console
from flights.history import HistoryRow
from testbed.cluster import WORKERS

UID = "6f2b9a5c-1f7e-4c58-9a53-0d4c6c1b2a3d"
SLICE = f"./kubelet.slice/kubelet-kubepods.slice/kubelet-kubepods-pod{UID.replace('-', '_')}.slice"


def test_cpu_time_of_a_pod_is_read_from_either_version_of_cgroups() -> None:
    assert cpu.by_pod(f"{SLICE}/cpuacct.usage:2500000\n") == {UID: 2500.0}
    assert cpu.by_pod(f"{SLICE}/cpu.stat:usage_usec 2500\n") == {UID: 2500.0}


def test_a_group_that_is_mounted_twice_counts_once() -> None:
    assert cpu.by_pod(f"{SLICE}/cpuacct.usage:2000\n./again/{SLICE[2:]}/cpuacct.usage:3000\n") == {UID: 3.0}


def test_a_group_outside_of_pods_is_left_out() -> None:
    assert cpu.by_pod("./system.slice/cpuacct.usage:5\ngrep: ./x: No such device\n\n") == {}


@dataclass(slots=True)
class Node:
    """A node whose one pod uses 1,000 µs between two looks."""

    spent: int = 0

    def run(self, node: str, *_: str, seconds: float = 30, check: bool = True) -> str:  # noqa: ARG002
        if node != WORKERS[0]:
            raise OSError("this node does not answer")
        self.spent += 1_000
        return f"{SLICE}/cpu.stat:usage_usec {self.spent}"


def test_a_meter_returns_what_was_used_until_a_moment(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = iter(float(second // 3) for second in range(99))  # three readings a look: one of them of the silent node
    monkeypatch.setattr(cpu, "time", SimpleNamespace(time=lambda: next(clock)))
    meter = cpu.Meter(Node())
    for _ in range(3):
        meter.look()
    assert meter.at(1.5, {UID: "worker"}) == {"worker": 2500}
    assert meter.at(-1.0, {UID: "worker"}) == {"worker": 1000}, "before the first look"
    assert meter.at(99.0, {UID: "worker"}) == {"worker": 3000}, "after the last look"


def test_a_pod_that_could_not_be_read_is_an_error_and_not_nothing() -> None:
    with pytest.raises(cpu.CannotMeterError, match="of a pod of worker"):
        cpu.Meter(Node()).at(1.0, {UID: "worker"})


def test_the_span_leaves_out_the_small_batches_at_both_ends() -> None:
    marks = [Mark(1, 10), Mark(2, 100), Mark(3, 100), Mark(4, 99), Mark(4.5, 3)]
    assert span(marks) == (marks[1], marks[3])


@pytest.mark.parametrize("marks", [[], [Mark(1, 100)], [Mark(1, 100), Mark(2, 3)]])
def test_a_span_needs_two_full_batches(marks: list[Mark]) -> None:
    with pytest.raises(ContestError, match="more rows"):
        span(marks)


def committed(at: str, records: int) -> str:
    return json.dumps({"time": at, "message": "committed", "records": records, "epoch": 1})


def test_the_log_of_a_driver_is_read_up_to_the_last_row() -> None:
    lines = [
        "WARN a line of Spark's",
        '{"message": "ready: warm", "seconds": 9.1}',
        committed("2026-01-01T00:00:00.000+00:00", 60),
        committed("2026-01-01T00:00:01.500+00:00", 40),
    ]

    def log() -> Iterator[str]:
        yield from lines
        raise AssertionError("nothing is read after the last row")

    marks = collected(log(), driver_mark, 100)
    assert [mark.records for mark in marks] == [60, 40]
    assert marks[1].at - marks[0].at == 1.5


def test_a_log_that_ends_early_says_how_far_it_got_and_its_last_line() -> None:
    lines = [committed("2026-01-01T00:00:00+00:00", 60), "java.lang.OutOfMemoryError\n"]
    with pytest.raises(ContestError, match=r"60 of 100 rows: java\.lang\.OutOfMemoryError"):
        collected(lines, driver_mark, 100)


def test_the_peers_log_is_read() -> None:
    assert peers.peer_mark('BATCH {"batch": 3, "records": 99999, "ended": 12.5}\n') == Mark(12.5, 99999)
    assert peers.peer_mark("26/01/01 WARN KafkaDataConsumer") is None


def options(folder: Path, **given: Any) -> Options:
    return Options(into=folder, **given)


def test_a_journal_knows_what_was_measured_under_its_conditions(tmp_path: Path) -> None:
    journal = Journal.of("peers", options(tmp_path), {"rows": 10})
    journal.add("a", 0, rows_per_second=1.0)
    journal.add("a", 0, rows_per_second=2.0)
    journal.path.write_text(journal.path.read_text() + '{"part": "b", "rou')
    assert [line["rows_per_second"] for line in journal.lines("a")] == [2.0]
    assert journal.has("a", 0)
    assert not journal.has("a", 1)
    assert not journal.has("b", 0)
    assert not Journal.of("peers", options(tmp_path), {"rows": 11}).has("a", 0)


def test_measuring_a_part_again_keeps_the_others(tmp_path: Path) -> None:
    for part in ("a", "b"):
        Journal.of("peers", options(tmp_path), {}).add(part, 0)
    journal = Journal.of("peers", options(tmp_path, again=True, only=("a",)), {})
    assert (journal.has("a", 0), journal.has("b", 0)) == (False, True)
    assert not Journal.of("peers", options(tmp_path, again=True), {}).has("b", 0)


def test_a_part_that_does_not_exist_is_named() -> None:
    with pytest.raises(ValueError, match="--only Fencepots: unknown part; one of Fencepost"):
        Options(only=("Fencepots",)).chosen(["Fencepost"])


class Stage:
    """A stage on which nothing has to be made."""

    tables = ("flights.departures",)
    ledger = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        pass

    def burst(self, rows: int) -> None:
        pass


def test_a_contestant_that_fails_is_a_note_and_measured_by_the_next_call(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    failing = {"Structured Streaming"}
    names = {id(contestant): name for name, contestant in peers.CONTESTANTS.items()}
    ran: list[str] = []

    def run(_scene: object, contestant: object, rows: int) -> Run:
        ran.append(names[id(contestant)])
        if ran[-1] in failing:
            raise ContestError("its image is not there")
        return Run(rows / 10, {"worker": 12.0})

    for name, double in (("run", run), ("staged", Stage), ("source", lambda scene: scene), ("clean", lambda _: None)):
        monkeypatch.setattr(peers, name, double)
    monkeypatch.setattr(peers, "differences", lambda *_: [])
    only = ("Structured Streaming", "Fencepost")
    first = peers.measure(Console(), options(tmp_path, rows=100, rounds=2, only=only))
    assert ran == ["Structured Streaming", "Fencepost", "Fencepost", "Structured Streaming"]
    assert [sample.name for sample in first.samples] == ["Fencepost", "Fencepost: worker"]
    assert len(first.notes) == 2
    assert "not measured: its image is not there" in first.notes[0]
    assert json.loads((tmp_path / "peers.json").read_text())["samples"][0]["values"] == [10.0, 10.0]
    failing.clear()
    ran.clear()
    second = peers.measure(Console(), options(tmp_path, rows=100, rounds=2, only=only))
    assert ran == ["Structured Streaming", "Structured Streaming"]
    assert second.notes == ["Fencepost / Structured Streaming: 1.00, 1.00"]


def test_growth_and_memtables_continue_after_a_part_that_fails(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def run(_scene: object, variant: growth.Variant) -> tuple[list[float], float, int]:
        if variant.partitions == 1_000:
            raise ValueError("no batch of 10,000 records")
        return [100.0, 200.0], 0.3, 2 * variant.records

    monkeypatch.setattr(growth, "staged", Stage)
    monkeypatch.setattr(growth, "run", run)
    monkeypatch.setattr(growth, "clear", lambda *_: None)
    result = growth.measure(Console(), options(tmp_path))
    assert result.notes == ["1,000 partitions: not measured: no batch of 10,000 records"]
    assert len(result.samples) == 4 * (len(growth.VARIANTS) - 1)

    monkeypatch.setattr(memtables, "staged", Stage)
    monkeypatch.setattr(memtables, "source", lambda scene: scene)
    monkeypatch.setattr(memtables, "clean", lambda _: None)
    refused = memtables.measure(Console(), options(tmp_path, rounds=1))
    assert len(refused.notes) == 2, "the stage has no session of Cassandra"
    assert refused.samples == []


def change(version: int, end: int, records: int, at_ms: float) -> HistoryRow:
    return HistoryRow(
        epoch=1,
        driver="pod",
        version=version,
        clock=version,
        offsets={"growth/0": end},
        planned={"growth/0": end},
        committed_at=None,
        records=records,
        written_at=int(at_ms * 1000),
    )


def test_growth_counts_full_batches_after_full_batches(monkeypatch: pytest.MonkeyPatch) -> None:
    rows = [change(number, end, 100, at) for number, (end, at) in enumerate([(100, 0), (200, 50), (300, 110)])]
    small = change(3, 310, 10, 111)
    last = change(4, 410, 100, 200)
    pairs = list(zip([None, *rows, small], [*rows, small, last], strict=True))
    monkeypatch.setattr(growth, "commits", lambda _: pairs)
    monkeypatch.setattr(growth, "SETTLE", 0)
    assert growth.pace([], 100) == ([50.0, 60.0], 0.11, 200)
    with pytest.raises(ValueError, match=r"no batch of 5,000 records among 5"):
        growth.pace([], 5_000)


def test_a_records_latency_is_that_of_the_first_commit_beyond_it(monkeypatch: pytest.MonkeyPatch) -> None:
    done = [(None, change(1, 2, 2, 1_000)), (None, change(2, 4, 2, 1_300))]
    monkeypatch.setattr("bench.delays.latency.commits", lambda _: done)
    # Offsets 0 to 4; the first is before the time that is measured, the last is not committed yet.
    assert latencies([], {"growth/0": [100, 900, 950, 1_200, 1_250]}, 500, 2_000) == [100, 350, 100]


def test_without_commits_the_fence_row_moves_in_memory_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[str] = []

    def swap(*_: object) -> bool:
        asked.append("swap")
        return True

    monkeypatch.setattr(CassandraFenceTable, "swap", swap)
    monkeypatch.setattr(CassandraFenceTable, "report_progress", lambda *_, **__: asked.append("progress"))
    monkeypatch.syspath_prepend(str(peers.CEILING.parent))
    monkeypatch.syspath_prepend(str(peers.CEILING.parents[3] / "examples/departures"))
    module = __import__("uncommitted")
    for name in ("uncommitted", "departures", "departures_arrow"):
        monkeypatch.delitem(sys.modules, name)
    assert module.record_batches.__module__ == "departures_arrow", "workers import the example's own module"
    table: Any = CassandraFenceTable.__new__(CassandraFenceTable)
    claimed = FenceRow(pipeline="default/flights/departures", owner="o", driver="pod")
    unclaimed = FenceRow(pipeline="default/flights/departures", owner="o")
    assert table.swap(claimed, claimed)
    table.report_progress("default/flights/departures", epoch=1, version=2, done=3)
    assert asked == []
    assert table.swap(unclaimed, claimed)
    assert asked == ["swap"]


def test_options_of_parts_are_refused_where_no_part_is_measured(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["commit", "--rounds", "2"])
    assert "--rounds is for growth, peers, memtables" in capsys.readouterr().err
