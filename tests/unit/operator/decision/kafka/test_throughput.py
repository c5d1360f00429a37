"""Rates and estimates: over whole windows, with the producers' rate, and without a write while nothing happens."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta

import jsonschema
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fakes.manifests import spec_of
from fencepost.fence import Fence, FenceRow
from fencepost.fence.memory import MemoryFenceTable
from fencepost_operator.api import ThroughputStatus
from fencepost_operator.api.codec import encode
from fencepost_operator.api.quantities import parse_duration
from fencepost_operator.decision.kafka.throughput import (
    FALLING_BEHIND_AFTER,
    LARGEST,
    catch_up_seconds,
    is_falling_behind,
    throughput_after,
)
from present import present
from unit.crds.schema import at, strict

START = datetime(2026, 1, 1, tzinfo=UTC)
ROW = Fence(MemoryFenceTable(), "s/ns/n").create("o")


SPEC = spec_of()


@dataclass
class Stream:
    """A pipeline that is looked at every `every` seconds: records arrive, and whole batches are committed."""

    lag: float
    arrives: float = 0.0
    commits: float = 0.0
    every: float = 5.0
    batch: int = 1
    now: datetime = START
    done: float = 0.0
    row: FenceRow = field(default_factory=lambda: replace(ROW, offsets={"t/0": 0}))
    seen: ThroughputStatus | None = None
    writes: int = 0
    is_first: bool = False
    """Whether another operator has made the last look."""

    def run(self, seconds: float) -> ThroughputStatus:
        self.wait(seconds)
        return present(self.seen)

    def wait(self, seconds: float) -> None:
        end = self.now + timedelta(seconds=seconds)
        while self.now < end:
            self.now += timedelta(seconds=self.every)
            self.lag += self.arrives * self.every
            self.done += min(self.commits * self.every, self.lag)
            whole = int(self.done // self.batch) * self.batch
            before, self.row = self.row, replace(self.row, offsets={"t/0": whole}, records=self.batch)
            self.lag -= whole - before.offsets["t/0"]
            after = throughput_after(
                self.seen,
                spec=SPEC,
                offsets=before.offsets,
                row=self.row,
                lag=round(self.lag),
                now=self.now,
                is_first=self.is_first,
            )
            self.writes += after != self.seen
            self.seen, self.is_first = after, False


@pytest.mark.parametrize(
    ("stream", "seconds", "rate", "estimate"),
    [
        pytest.param(Stream(lag=1_000_000, commits=5_000), 120, 5_000, "2m", id="a backlog without producers"),
        pytest.param(Stream(lag=18_000_000, arrives=5_000, commits=10_000), 70, 10_000, "59m", id="producers count"),
        pytest.param(Stream(lag=1_000_000, commits=5_000), 30, None, None, id="not before the first window is over"),
        pytest.param(Stream(lag=1_000_000, arrives=5_000, commits=5_000), 300, 5_000, None, id="it does not fall"),
        pytest.param(Stream(lag=400, arrives=100, commits=100), 300, 100, "0s", id="it keeps up"),
        pytest.param(
            Stream(lag=10_000_000, commits=1_000, batch=100_000), 610, 1_000, "2h40m", id="batches of minutes"
        ),
    ],
)
def test_the_rate_and_the_estimate(stream: Stream, seconds: float, rate: int | None, estimate: str | None) -> None:
    found = stream.run(seconds)
    assert (found.records_per_second, found.estimated_catch_up, found.growing_seconds) == (rate, estimate, 0)
    assert catch_up_seconds(found) == (None if estimate is None else parse_duration(estimate))


def test_the_start_of_a_run_is_not_part_of_its_first_rate() -> None:
    """A backlog of an hour, and 45 s until the driver commits: the first estimate was 60 % too long."""
    stream = Stream(lag=18_000_000)
    stream.wait(45)
    assert stream.seen is None
    stream.commits = 10_000
    found = stream.run(65)
    assert (found.records_per_second, found.estimated_catch_up) == (10_000, "29m")


def test_an_idle_pipeline_is_written_once() -> None:
    stream = Stream(lag=0)
    assert stream.run(600).records_per_second == 0
    assert present(stream.seen).estimated_catch_up == "0s"
    assert stream.writes == 2


def test_the_time_of_idleness_does_not_dilute_the_rate_after_it() -> None:
    stream = Stream(lag=0)
    stream.run(3600)
    stream.lag, stream.commits = 1_000_000, 2_000
    assert stream.run(70).records_per_second == 2_000


def test_a_lag_that_grows_under_full_batches_for_long_is_falling_behind() -> None:
    stream = Stream(lag=100_000, arrives=6_000, commits=5_000, batch=1_000)
    assert not is_falling_behind(stream.run(FALLING_BEHIND_AFTER.total_seconds()))
    assert is_falling_behind(stream.run(70))
    stream.commits = 20_000
    assert not is_falling_behind(stream.run(70))


def test_a_burst_that_one_batch_holds_is_not_falling_behind() -> None:
    stream = Stream(lag=300_000, arrives=6_000, commits=5_000, batch=1_000_000)
    assert not is_falling_behind(stream.run(650))


def test_nothing_changes_for_a_pipeline_that_is_quiet() -> None:
    stream = Stream(lag=0, arrives=100, commits=100)
    stream.run(90)
    stream.arrives = 0
    assert stream.run(70).records_per_second == 0
    writes = stream.writes
    stream.run(600)
    assert stream.writes == writes


def test_an_operator_that_begins_inside_a_batch_begins_a_window_with_its_commit() -> None:
    """From the middle of a batch of 100 s on, all its records would count for half of its time."""
    stream = Stream(lag=10_000_000, commits=1_000, batch=100_000)
    stream.run(350)
    stream.is_first = True
    assert (found := stream.run(40)).since is None
    assert (found.records_per_second, found.estimated_catch_up) == (1_000, "2h40m")
    assert stream.run(110).records_per_second == 1_000


def test_an_operator_that_begins_keeps_what_the_last_one_has_measured() -> None:
    stream = Stream(lag=100_000, arrives=6_000, commits=5_000, batch=1_000)
    stream.run(400)
    stream.is_first = True
    found = stream.run(5)
    assert (found.records_per_second, is_falling_behind(found)) == (5_000, True)


@pytest.mark.parametrize("text", [None, "soon", "-1s", ""])
def test_an_estimate_that_is_none(text: str | None) -> None:
    assert catch_up_seconds(ThroughputStatus(since=START, estimated_catch_up=text)) is None


OFFSETS = st.dictionaries(st.sampled_from(["t/0", "t/1", "u/0"]), st.integers(-(2**63), 2**63 - 1))


@given(
    st.lists(
        st.tuples(OFFSETS, st.integers(0, 2**66), st.integers(0, 10**6), st.integers(0, 2**31), st.booleans()),
        max_size=12,
    )
)
def test_whatever_the_row_says_the_status_stays_one_that_can_be_written(
    looks: list[tuple[dict[str, int], int, int, int, bool]],
) -> None:
    """The row is in the tenant's Cassandra: a status that the API server refuses would stop the pipeline's loop."""
    seen: ThroughputStatus | None = None
    now, before = START, dict[str, int]()
    for offsets, lag, seconds, records, is_first in looks:
        now += timedelta(seconds=seconds)
        row = replace(ROW, offsets=offsets, records=records)
        seen = throughput_after(seen, spec=SPEC, offsets=before, row=row, lag=lag, now=now, is_first=is_first)
        before = offsets
        if seen is None:
            continue
        written = encode(seen)
        jsonschema.validate(written, strict(at("status.throughput")))
        assert all(-1 <= value <= LARGEST for value in written.values() if isinstance(value, int))
        estimate = catch_up_seconds(seen)
        assert estimate is None or 0 <= estimate <= 366 * 24 * 3600
        assert len(seen.estimated_catch_up or "") <= 10
