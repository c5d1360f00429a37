import io
import json
from pathlib import Path

import pytest

from bench.delays.recovery import Recovery, fence_moments, known, log_lines
from bench.samples import Result, Sample
from demo.play import next_commit
from flights.console import Console
from flights.history import HistoryRow


@pytest.mark.parametrize(("share", "expected"), [(0.5, 5), (0.95, 10), (0.99, 10), (0.1, 1), (0.11, 2)])
def test_a_percentile_is_a_value_that_was_measured(share: float, expected: float) -> None:
    assert Sample("x", "ms", [10, 1, 9, 2, 8, 3, 7, 4, 6, 5]).percentile(share) == expected


def test_a_result_is_printed_and_kept(tmp_path: Path) -> None:
    result = Result("commit", [Sample("a", "ms", [1.0, 20.0, 3000.0]), Sample("b", "ms", [])], {"nodes": 1}, ["note"])
    stream = io.StringIO()

    result.show(Console(stream))
    kept = json.loads(result.save(tmp_path).read_text())

    lines = stream.getvalue().splitlines()
    assert lines[1] == "commit: nodes 1"
    assert lines[4].split() == ["a", "3", "20.0", "3,000", "3,000", "3,000", "ms"]
    assert lines[5].split() == ["b", "0", "ms"]
    assert kept["samples"][0]["values"] == [1.0, 20.0, 3000.0]
    assert kept["notes"] == ["note"]


HISTORY = [
    HistoryRow(epoch=1, driver="a", version=3, clock=101, offsets={"t/0": 5}, records=5, written_at=1_000_000),
    HistoryRow(epoch=2, driver=None, version=4, clock=200, offsets={"t/0": 5}, written_at=2_000_000),
    HistoryRow(epoch=2, driver="b", version=5, clock=200, offsets={"t/0": 5}, written_at=3_000_000),
    HistoryRow(epoch=2, driver="b", version=6, clock=201, offsets={"t/0": 5}, records=0, written_at=3_500_000),
    HistoryRow(epoch=2, driver="b", version=7, clock=202, offsets={"t/0": 7}, records=2, written_at=4_000_000),
]


def test_the_moments_of_a_takeover_are_in_the_history() -> None:
    assert fence_moments(HISTORY, 2) == {"fenced": 2.0, "claimed": 3.0, "committed": 4.0}


def test_the_next_commit_is_one_that_moved_something() -> None:
    assert next_commit(HISTORY, after=3.2) == 4.0
    assert next_commit(HISTORY, after=4.0) is None


def test_a_moment_that_is_not_known_is_left_out() -> None:
    whole, half = Recovery({"killed": 1.0, "committed": 3.5}), Recovery({"killed": 1.0})

    assert known([whole, half], "killed", "committed") == [2.5]


def test_of_a_log_only_the_drivers_own_lines_count() -> None:
    log = 'WARN Spark says\n{"message": "ready: session", "seconds": 2}\n[1]\n'

    assert list(log_lines(log)) == [{"message": "ready: session", "seconds": 2}]
