"""The search for a record's age, against a Kafka that answers as the real one does, or answers nonsense."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fencepost_operator.adapters.kafka.record_ages import FRACTION, PRECISION, STEPS, RecordAges, milliseconds
from fencepost_operator.observation import NO_RECORD

NOW = datetime(2026, 1, 1, 12, tzinfo=UTC)
AT = milliseconds(NOW)


def first_offset(timestamps: Sequence[int], asked: int, start: int = 0) -> int:
    """Answer a timestamp as Kafka does; `timestamps` are those of the offsets from `start` on."""
    return next((start + index for index, at in enumerate(timestamps) if at >= asked), NO_RECORD)


def search(ages: RecordAges, timestamps: Sequence[int], start: int = 0) -> int:
    """Answer until nothing is asked any more; return how many answers that took."""
    count = 0
    while questions := ages.questions():
        for key, asked in questions.items():
            ages.answer(key, asked, first_offset(timestamps, asked, start))
        count += 1
        assert count <= 50
    return count


def age(ages: RecordAges, key: str = "t/0") -> float:
    return (NOW - ages.found()[key]).total_seconds()


@pytest.mark.parametrize(
    "seconds", [0, 1, 30, 60, 3600, 86_400, 7 * 86_400, 400 * 86_400], ids=lambda seconds: f"{seconds}s"
)
def test_the_age_is_found_within_its_precision_in_few_steps(seconds: int) -> None:
    ages = RecordAges()
    ages.look_for({"t/0": 1}, NOW)
    record = AT - 1000 * seconds
    assert search(ages, [record - 5_000_000, record, min(AT, record + 1000), AT]) <= 2 * STEPS + 1
    assert seconds <= age(ages) <= seconds + max(PRECISION / 1000, FRACTION * age(ages)) + 1


@given(
    timestamps=st.lists(st.integers(-1, AT + 10**9), min_size=1, max_size=30),
    offset=st.integers(0, 40),
    start=st.integers(0, 5),
)
def test_it_is_the_youngest_record_up_to_the_offset_whatever_the_order(
    timestamps: list[int], offset: int, start: int
) -> None:
    ages = RecordAges()
    ages.look_for({"t/0": start + offset}, NOW)
    search(ages, timestamps, start)
    true = max(timestamps[: offset + 1])
    found = ages.found().get("t/0")
    if found is None:
        assert true <= AT * FRACTION, "only a record without a usable timestamp is left out"
        return
    low = milliseconds(found)
    assert low <= true
    assert min(true, AT) - low <= max(PRECISION, FRACTION * (AT - low)) + 1000


@given(answers=st.lists(st.integers(-(2**63), 2**63 - 1), min_size=60, max_size=60), offset=st.integers(0, 2**63))
def test_any_answers_end_the_search(answers: list[int], offset: int) -> None:
    ages = RecordAges()
    ages.look_for({"t/0": offset}, NOW)
    for answer in answers:
        for key, asked in ages.questions().items():
            assert 0 <= asked <= AT
            ages.answer(key, asked, answer)
    assert not ages.questions()
    assert all(found <= NOW for found in ages.found().values())


def test_a_record_that_has_just_arrived_takes_one_question_and_one_that_waits_none() -> None:
    ages = RecordAges()
    ages.look_for({"t/0": 7}, NOW)
    assert search(ages, [AT - 1000] * 10) == 1
    for minutes in range(60):
        ages.look_for({"t/0": 7}, NOW + timedelta(minutes=minutes))
        assert not ages.questions()
        assert age(ages) <= PRECISION / 1000


def test_a_position_that_moves_is_looked_up_again_after_a_while() -> None:
    ages = RecordAges()
    timestamps = [AT - 3_600_000 + 1000 * index for index in range(3600)]
    ages.look_for({"t/0": 0}, NOW)
    search(ages, timestamps)
    first = ages.found()["t/0"]
    ages.look_for({"t/0": 1800}, NOW + timedelta(seconds=5))
    assert not ages.questions()
    assert ages.found()["t/0"] == first, "older than it is, and for seconds alone"
    ages.look_for({"t/0": 1800}, NOW + timedelta(seconds=20))
    search(ages, timestamps)
    assert abs(age(ages) - 1800) < 60


def test_going_back_is_seen_at_once() -> None:
    ages = RecordAges()
    timestamps = [AT - 3_600_000 + 1000 * index for index in range(3600)]
    ages.look_for({"t/0": 3590}, NOW)
    search(ages, timestamps)
    ages.look_for({"t/0": 0}, NOW)
    assert ages.found() == {}
    search(ages, timestamps)
    assert 3600 <= age(ages) <= 3700


def test_a_recreated_topic_is_searched_again() -> None:
    ages = RecordAges()
    ages.look_for({"t/0": 0, "u/0": 0}, NOW)
    search(ages, [AT - 60_000])
    ages.forget({"t"})
    assert set(ages.found()) == {"u/0"}
    ages.look_for({"t/0": 0, "u/0": 0}, NOW)
    assert set(ages.questions()) == {"t/0"}


def test_a_partition_that_was_read_to_its_end_is_forgotten() -> None:
    ages = RecordAges()
    ages.look_for({"t/0": 0}, NOW)
    ages.look_for({}, NOW)
    assert not ages.questions()
    assert ages.found() == {}
