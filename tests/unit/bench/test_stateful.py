"""What the bench of stateful pipelines makes of drivers' logs, and the page of its figures."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from bench import cpu
from bench.contest import ContestError
from bench.options import Journal, Options
from bench.stateful import contest, flink, large, measure
from bench.stateful.contestants import FENCED, FLOOR, KEYS, MANY_KEYS, NATIVE, blocks, patch, records
from generators.benchmarks import collect, render
from generators.figures import read


class Node:
    """A node whose pods use no CPU."""

    def run(self, node: str, *command: str, seconds: float = 30, check: bool = True) -> str:
        del node, command, seconds, check
        return ""


def committed(second: float, count: int) -> dict[str, Any]:
    return {
        "message": "committed",
        "time": datetime.fromtimestamp(second, UTC).isoformat(),
        "records": count,
        "ms": {"job": 1000 * second},
    }


def observed(**done: float) -> dict[str, Any]:
    return {"message": "observed", "spark": {"addBatch": done["files"]}, "done": done}


def test_a_schedule_has_a_block_of_large_batches_and_one_of_small_ones() -> None:
    large, small = blocks("2x100,3x100,1x10,4x10")
    assert (large.name, large.first, large.last) == ("100", 2, 5)
    assert (small.records, small.first, small.last) == (10, 6, 10)
    assert (large.before, small.before) == (200, 510)
    assert records("2x100,3x100,1x10,4x10") == 550


def test_a_block_is_measured_from_the_commit_before_it() -> None:
    """A batch without records, which closes windows, is part of the one before the next commit."""
    log = contest.Log()
    for second, count in ((1, 100), (2, 100), (4, 100), (4.5, 0), (7, 100)):
        log.add(committed(second, count))
    for files in (4, 8, 12, 16):
        log.add(observed(files=files))
    (block, _) = blocks("2x100,2x100,1x10,1x10")
    found = contest.measured(block, log, cpu.Meter(Node()), {})
    assert found.took == [2000, 3000]
    assert found.phases == {"job": [4000, 7000], "Spark's addBatch": [16]}
    assert found.done == {"files": 4}


def test_batches_of_another_size_are_refused() -> None:
    log = contest.Log()
    for second in range(4):
        log.add(committed(second, 99))
    with pytest.raises(ContestError, match="99"):
        contest.measured(blocks("1x99,3x100,1x10,1x10")[0], log, cpu.Meter(Node()), {})


def test_a_block_of_flink_lasts_from_commit_to_commit_of_so_many_records() -> None:
    (block, _) = blocks("2x100,2x100,1x10,1x10")
    progress = [(10.0, 100), (12.0, 300), (16.0, 420)]
    found = flink.measured(block, progress, cpu.Meter(Node()), {})
    assert found.block == "100"
    assert found.took == pytest.approx([1000, 3333.3], abs=0.1)
    with pytest.raises(ContestError, match="fewer than 400"):
        flink.measured(block, progress[:2], cpu.Meter(Node()), {})
    with pytest.raises(ContestError, match="first checkpoint"):
        flink.measured(block, progress[1:], cpu.Meter(Node()), {})


def test_many_keys_are_measured_where_they_are_asked_for_and_have_a_topic_of_their_own() -> None:
    many = [part for part in measure.PARTS if measure.keys_of(part) != KEYS]
    assert many == [f"{name}: {MANY_KEYS}" for name in (FENCED, NATIVE, "PyFlink")]
    assert patch(FENCED, MANY_KEYS)["job"]["args"][0] == "count"
    assert set(many) <= measure.ONCE


def test_the_contestants_differ_in_the_checkpoint_and_the_mode_alone() -> None:
    fenced, native, floor = (patch(name, "count") for name in (FENCED, NATIVE, FLOOR))
    assert fenced["job"]["args"][:2] == native["job"]["args"][:2] == floor["job"]["args"][:2]
    assert native["job"]["args"][2] == "local"
    assert floor["job"]["mode"] == "Stateless"


def block(name: str, took: float, server: float) -> dict[str, Any]:
    return {
        "block": name,
        "took": [took],
        "phases": {"Spark's addBatch": [took / 2]},
        "spent": {"driver": 200.0, "worker": 100.0},
        "done": {"files": 4.0, "server ms": server, "request RENAME": 6.0},
    }


def test_the_page_compares_each_batch_with_the_native_one(tmp_path: Path) -> None:
    journal = Journal.of(measure.NAME, Options(into=tmp_path), {"keys": 10})
    for name, took in ((FENCED, 190.0), (NATIVE, 200.0)):
        journal.add(f"{name}: count", 0, blocks=[block("100,000", 10 * took, 2.0), block("1,000", took, 8.0)])
    measure.result(journal, 1, []).save(tmp_path / "measured")
    sizes = Journal.of(large.NAME, Options(into=tmp_path), {"cores": 1})
    sizes.add(
        "1 GB", 0, samples=[{"name": "1 GB, kill to commit, files of the worker", "unit": "s", "values": [14.0, 16.0]}]
    )
    large.result(sizes, []).save(tmp_path / "measured")
    collect(tmp_path / "measured", tmp_path / "docs")
    page = render("{{aims}}\n{{stateful}}", read(tmp_path / "docs"))
    assert "| count by key: Fencepost | 1,000 | 190 | 190 | 0.95 | 300 | 1.00 |" in page
    assert "| count by key, batch of 1,000, p50, against native, local checkpoint | ≤ 1 times | 0.95 | met |" in page
    assert "with 1 GB of state, p95 | ≤ 15 s | 16.0 | **missed** |" in page
    assert "| CPU of the driver's server at 5 batches per second | ≤ 10 % of a core | 4.00 | met |" in page
    assert page.count("not measured") > 13
