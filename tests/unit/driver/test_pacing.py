"""The batches of a backlog end at one record time in all partitions."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Mapping, Sequence

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from fencepost.batch import Watermarks
from fencepost.driver.planning.pacing import REQUESTS, Pacing
from fencepost.driver.planning.plan import Divide, equally, next_batch
from unit.driver.timed_log import Time, TimedPartitions, reached

NOW = 1_767_225_600_000
"""In ms: 2026-01-01."""
HOUR = 3_600_000


def pacing(log: TimedPartitions) -> Pacing:
    return Pacing(log.offsets_at, now=lambda: NOW / 1000)


def spread(log: TimedPartitions, offsets: Mapping[str, int]) -> int:
    """Return by how much the newest record that is read is ahead of the oldest one that is not."""
    read = max(reached(times, offsets[key]) for key, times in log.times.items())
    waiting = [at for key, times in log.times.items() for at in times[offsets[key] :] if at is not None]
    return read - min(waiting, default=read)


def batches(log: TimedPartitions, divide: Divide, limit: int) -> Iterator[dict[str, int]]:
    """Read the whole log; yield the offsets after each batch."""
    ends = log.ends
    state = Watermarks(begins=dict.fromkeys(ends, 0), ends=ends, topic_ids={})
    offsets = dict.fromkeys(ends, 0)
    while not (batch := next_batch(offsets, state, {key.split("/")[0] for key in ends}, limit, divide=divide)).is_empty:
        assert batch.records == min(limit, sum(log.lag(offsets).values()))
        offsets = dict(batch.until)
        yield offsets
    assert offsets == ends


def skewed(choice: random.Random) -> TimedPartitions:
    """Some hours of records that came to partitions at rates of their own, with outages of all and of single ones."""
    begin = NOW - 10 * HOUR
    keys = [f"{topic}/{number}" for topic in ("a", "b") for number in range(choice.randint(1, 4))]
    outages = {key: [choice.randrange(begin, NOW) for _ in range(choice.randint(0, 2))] for key in (*keys, "every one")}
    times = {}
    for key in keys:
        count = choice.choice([0, 3, 30, 300])
        arrivals = sorted(choice.randrange(begin, NOW) for _ in range(count))
        gaps = [*outages[key], *outages["every one"]]
        times[key] = [at for at in arrivals if not any(gap <= at < gap + HOUR for gap in gaps)]
    return TimedPartitions(times)


@pytest.mark.parametrize("limit", [3, 100])
@pytest.mark.parametrize("seed", range(10))
def test_no_batch_reads_a_record_while_an_older_one_waits(seed: int, limit: int) -> None:
    log = skewed(random.Random(seed))
    for offsets in batches(log, pacing(log), limit):
        assert spread(log, offsets) <= 0, offsets


def test_equal_shares_read_a_short_backlog_hours_ahead() -> None:
    """What happened: the records of three partitions were late, after the fourth one had reached the present."""
    log = TimedPartitions({"t/0": [NOW - HOUR + 1000 * n for n in range(1000)], "t/1": [NOW - HOUR, NOW]})
    assert spread(log, next(batches(log, equally, 100))) > HOUR / 2
    assert max(spread(log, offsets) for offsets in batches(log, pacing(log), 100)) <= 0


def test_out_of_order_records_are_late_by_what_they_are_in_their_own_partition() -> None:
    choice = random.Random(5)
    times = {
        f"t/{part}": [NOW - HOUR + 100 * number - choice.randrange(5000) for number in range(300 * (1 + 9 * part))]
        for part in range(3)
    }
    log = TimedPartitions(times)
    for offsets in batches(log, pacing(log), 100):
        assert spread(log, offsets) < 5000


@given(
    st.dictionaries(
        st.sampled_from(["t/0", "t/1", "t/2"]),
        st.lists(st.none() | st.integers(-5, 5) | st.integers(0, 2 * NOW) | st.just(1 << 60), max_size=12),
        min_size=1,
    ),
    st.integers(1, 12),
)
@example({"t/0": [None] * 5, "t/1": [None] * 9}, 3)
@example({"t/0": [1 << 60], "t/1": [0]}, 1)
def test_whatever_the_timestamps_are_each_batch_is_full_and_everything_is_read(
    times: Mapping[str, Sequence[Time]], limit: int
) -> None:
    log = TimedPartitions(times)
    divide, before = pacing(log), 0
    for offsets in batches(log, divide, limit):
        newest = max(reached(part, offsets[key]) for key, part in times.items())
        for key, part in times.items():
            if offsets[key] < len(part):  # what waits lies before no record that is older than what is read
                assert reached(part, offsets[key] + 1) >= newest or part[offsets[key]] is None or newest < 0
        assert len(log.asked) - before <= REQUESTS
        before = len(log.asked)


def test_a_log_that_fits_into_a_batch_is_read_without_a_request() -> None:
    log = TimedPartitions({"t/0": [1, 2], "t/1": [3]})
    assert pacing(log)({"t/0": 0, "t/1": 0}, {"t/0": 2, "t/1": 1}, 3) == {"t/0": 2, "t/1": 1}
    assert not log.asked


def test_a_backlog_of_one_partition_is_read_without_a_request() -> None:
    log = TimedPartitions({"t/0": [1, 2, 3]})
    assert pacing(log)({"t/0": 1}, {"t/0": 2}, 1) == {"t/0": 1}
    assert not log.asked


def test_many_records_of_one_millisecond_are_read_in_proportion() -> None:
    """As a file that was loaded with one timestamp."""
    log = TimedPartitions({"t/0": [NOW] * 900, "t/1": [NOW] * 90, "t/2": [NOW + 1] * 10})
    assert pacing(log)(dict.fromkeys(log.times, 0), log.ends, 110) == {"t/0": 100, "t/1": 10, "t/2": 0}


def test_records_without_timestamps_are_read_in_proportion() -> None:
    log = TimedPartitions({"t/0": [None] * 300, "t/1": [None] * 30})
    assert next(batches(log, pacing(log), 33)) == {"t/0": 30, "t/1": 3}


@pytest.mark.parametrize("clock", [None, 0, NOW + 1000 * HOUR, 1 << 60])
def test_a_partition_with_a_wrong_clock_neither_stops_the_others_nor_is_stopped(clock: Time) -> None:
    """It is read before the others' backlog, or after it; they stay together."""
    right = {f"t/{part}": [NOW - HOUR + 10 * number for number in range(100 * (part + 1))] for part in range(3)}
    log = TimedPartitions({**right, "t/9": [clock] * 100})
    others = TimedPartitions(right)
    found = list(batches(log, pacing(log), 40))
    first = clock is None or clock < NOW
    assert found[0]["t/9"] == (40 if first else 0)
    assert found[-1]["t/9"] == 100
    for offsets in found:
        assert spread(others, offsets) <= 0


def test_a_partition_without_a_leader_is_left_out_and_read_first_when_it_is_back() -> None:
    log = TimedPartitions({key: [NOW - HOUR + n for n in range(100)] for key in ("t/0", "t/1", "t/2")}, silent={"t/1"})
    divide = pacing(log)
    offsets = dict.fromkeys(log.times, 0)
    granted = divide(offsets, log.lag(offsets), 50)
    assert granted == {"t/0": 25, "t/2": 25}
    assert divide(offsets, {"t/0": 10, "t/1": 100}, 50) == {"t/0": 10}
    log.silent = set()
    offsets |= granted
    assert divide(offsets, log.lag(offsets), 20) == {"t/0": 0, "t/1": 20, "t/2": 0}


def test_where_no_leader_answers_nothing_is_read() -> None:
    log = TimedPartitions({"t/0": [1, 2], "t/1": [1, 2]}, silent={"t/0", "t/1"})
    assert not pacing(log)(dict.fromkeys(log.times, 0), log.ends, 1)


def even(parts: int, count: int) -> TimedPartitions:
    choice = random.Random(3)
    return TimedPartitions(
        {f"t/{part}": sorted(choice.randrange(NOW - 10 * HOUR, NOW) for _ in range(count)) for part in range(parts)}
    )


@pytest.mark.parametrize(("make", "requests"), [(lambda: even(8, 5000), 12), (lambda: even(2, 5000), 12)])
def test_the_next_time_is_found_with_few_requests(make: Callable[[], TimedPartitions], requests: int) -> None:
    log = make()
    divide = pacing(log)
    count = len(list(batches(log, divide, 1000)))
    assert len(log.asked) / count <= requests


def test_a_search_asks_only_where_more_is_to_be_known() -> None:
    """A look at a time costs a broker a search in each partition's log."""
    log = even(50, 200)
    assert len(list(batches(log, pacing(log), 1000))) == 10
    assert sum(len(keys) for _, keys in log.asked) < 0.9 * 50 * len(log.asked)


def test_after_a_pause_without_backlog_and_after_a_rewind_the_search_finds_its_place() -> None:
    log = even(3, 2000)
    divide = pacing(log)
    for offsets in (dict.fromkeys(log.times, 50), dict.fromkeys(log.times, 1900), dict.fromkeys(log.times, 0)):
        before = len(log.asked)
        granted = divide(offsets, log.lag(offsets), 90)
        assert sum(granted.values()) == 90
        times = {key: log.times[key][offsets[key] :] for key in log.times}
        assert spread(TimedPartitions(times), granted) <= 0
        assert len(log.asked) - before < 60
