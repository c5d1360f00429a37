"""How large the next batch is: within its bounds whatever was measured, and near the target after a few batches."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fencepost.contract import KafkaSource
from fencepost.driver.sizing.batch_size import GROWTH, LARGEST_RECORD, BatchSize, Bounds, Measured

SMALL_WORKER = 128 * 1024 * 1024
"""A quarter of the heap that an executor of the smallest worker has."""
DEFAULTS = Bounds(least=1_000, most=100_000, target=10.0, size=SMALL_WORKER)


def run(
    size: BatchSize, count: int, *, record_size: int = 100, seconds: Callable[[int], float] = lambda _: 0.2
) -> list[int]:
    """Return the sizes of `count` full batches, each of which takes what `seconds` says for its records."""
    sizes = [size.records]
    for _ in range(count - 1):
        batch = size.records
        size = size.after(Measured(offsets=batch, records=batch, size=batch * record_size, seconds=seconds(batch)))
        sizes.append(size.records)
    return sizes


def test_a_first_batch_fits_into_memory_whatever_its_records_are() -> None:
    assert BatchSize.first(DEFAULTS).records == SMALL_WORKER // LARGEST_RECORD == 128


def test_small_records_reach_the_full_size_within_six_batches() -> None:
    assert run(BatchSize.first(DEFAULTS), 6) == [128, 1_000, 4_000, 16_000, 64_000, 100_000]


@pytest.mark.parametrize("rate", [20_000, 50_000])
def test_the_default_target_shrinks_no_batch_at_the_rates_that_were_measured(rate: int) -> None:
    assert run(BatchSize.first(DEFAULTS), 20, seconds=lambda records: 0.2 + records / rate)[6:] == [100_000] * 14


def test_records_of_a_megabyte_stay_at_what_fits() -> None:
    sizes = run(BatchSize.first(DEFAULTS), 20, record_size=LARGEST_RECORD, seconds=lambda records: records / 50)
    assert sizes == [128] * 20


def test_memory_comes_before_the_lower_bound() -> None:
    bounds = Bounds(least=1_000, most=100_000, size=1_000_000)
    known = BatchSize(bounds=bounds, records=1_000, record_size=100_000.0)
    assert known.after(Measured(offsets=1_000, records=1_000, size=100_000_000, seconds=1)).records == 10


def test_larger_records_count_at_once_and_smaller_ones_by_half() -> None:
    size = BatchSize(bounds=DEFAULTS, records=100_000, record_size=100.0)
    larger = size.after(Measured(offsets=100_000, records=100_000, size=100_000 * 10_000, seconds=1))
    assert larger.records == SMALL_WORKER // 10_000
    smaller = larger.after(Measured(offsets=1_000, records=1_000, size=100_000, seconds=1))
    assert smaller.record_size == (10_000 + 100) / 2


def test_one_slow_batch_shrinks_the_next_and_is_forgotten_two_batches_later() -> None:
    full = BatchSize(bounds=DEFAULTS, records=100_000, record_size=100.0)
    slow = full.after(Measured(offsets=100_000, records=100_000, size=10_000_000, seconds=100))
    assert slow.records == 10_000
    assert run(slow, 3) == [10_000, 40_000, 100_000]


def test_a_small_batch_says_nothing_about_a_large_one() -> None:
    full = BatchSize(bounds=DEFAULTS, records=100_000, record_size=100.0)
    assert full.after(Measured(offsets=3, records=3, size=300, seconds=0.3)).records == 100_000


def test_a_batch_without_records_teaches_no_record_size() -> None:
    """Compaction and markers of transactions leave ranges of offsets without any."""
    size = BatchSize.first(DEFAULTS)
    assert size.after(Measured(offsets=128, records=0, size=0, seconds=0.1)).records == 128


def test_a_reduced_upper_bound_is_kept_and_raised() -> None:
    size = BatchSize.first(Bounds(least=1_000, most=50))
    assert run(size, 3) == [50, 50, 50]
    assert size.at_most(100).records == 100
    known = BatchSize(bounds=Bounds(least=1, most=50, size=6_000), records=50, record_size=100.0)
    assert known.at_most(100).records == 60
    assert known.at_most(20).records == 20


def test_a_configuration_without_the_new_fields_is_bound_by_records_alone() -> None:
    source = KafkaSource(bootstrap_servers="k", topics=("t",), max_records_per_batch=7)
    size = BatchSize.first(Bounds.of(source))
    assert size.records == 7
    assert size.after(Measured(offsets=7, records=7, size=10**12, seconds=10_000)).records == 7
    assert BatchSize.first(Bounds.of(source, most=3)).records == 3


BOUNDS = st.builds(
    Bounds,
    least=st.integers(1, 10**4),
    most=st.integers(1, 10**7),
    target=st.none() | st.floats(0.1, 3600),
    size=st.none() | st.integers(2**20, 2**40),
)
BATCHES = st.lists(
    st.builds(
        Measured,
        offsets=st.integers(0, 10**7),
        records=st.integers(0, 10**7),
        size=st.integers(0, 2**45),
        seconds=st.floats(0, 10**6),
    ),
    max_size=20,
)


@given(BOUNDS, BATCHES)
def test_whatever_is_measured_the_size_is_within_its_bounds(bounds: Bounds, batches: list[Measured]) -> None:
    size = BatchSize.first(bounds)
    for batch in batches:
        before, size = size, size.after(batch)
        assert 1 <= size.records <= bounds.most
        if bounds.size is not None and size.records > 1:
            assumed = LARGEST_RECORD if size.record_size is None else size.record_size
            assert size.records * assumed <= bounds.size
        assert size.records <= max(GROWTH * max(before.records, batch.offsets), bounds.least)


@given(st.floats(5, 10**6), st.integers(1, 10**6), st.floats(0, 1))
def test_a_steady_rate_settles_near_the_target_or_at_a_bound(rate: float, record_size: int, overhead: float) -> None:
    sizes = run(
        BatchSize.first(DEFAULTS), 30, record_size=record_size, seconds=lambda records: overhead + records / rate
    )
    last, took = sizes[-1], overhead + sizes[-1] / rate
    fitting = min(DEFAULTS.most, SMALL_WORKER // record_size)
    at_a_bound = last in {fitting, DEFAULTS.least} and (last == fitting or took >= 10.0)
    assert at_a_bound or abs(took - 10.0) < 1.0
