"""The lines of a scrape are those that prometheus_client writes."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st
from prometheus_client import CollectorRegistry, Gauge, Histogram, generate_latest
from prometheus_client.metrics import disable_created_metrics

from fencepost_operator.runtime.metrics.series import HistogramSeries, Series

disable_created_metrics()  # type: ignore[no-untyped-call]
LABELS = ("namespace", "name")
BUCKETS = (0.1, 1, 2.5, 1_000_000)
VALUES = st.tuples(st.text(max_size=5), st.text(max_size=5))


@given(st.lists(st.tuples(VALUES, st.floats()), max_size=8))
def test_gauges(figures: list[tuple[tuple[str, str], float]]) -> None:
    registry, ours = CollectorRegistry(), Series("lag", "Records.", LABELS)
    theirs = Gauge("lag", "Records.", LABELS, registry=registry)
    for values, figure in figures:
        theirs.labels(*values).set(figure)
        ours.set(values, figure)
    assert ours.text() == generate_latest(registry).decode()
    for values, _ in figures:
        ours.remove(values)
        ours.remove(values)
    assert ours.text() == "# HELP lag Records.\n# TYPE lag gauge\n"


@given(st.lists(st.tuples(VALUES, st.floats(allow_nan=False, allow_infinity=False)), max_size=20))
def test_histograms(observed: list[tuple[tuple[str, str], float]]) -> None:
    registry, ours = CollectorRegistry(), HistogramSeries("took", "Seconds.", LABELS, buckets=BUCKETS)
    theirs = Histogram("took", "Seconds.", LABELS, buckets=BUCKETS, registry=registry)
    for values, figure in observed:
        theirs.labels(*values).observe(figure)
        ours.observe(values, figure)
    assert ours.text() == generate_latest(registry).decode()


@pytest.mark.parametrize("figure", [True, 3, math.inf, 1.7e9])
def test_a_figure_that_is_not_a_float_is_written_as_one(figure: float) -> None:
    registry, ours = CollectorRegistry(), Series("ready", "Ready.", LABELS)
    Gauge("ready", "Ready.", LABELS, registry=registry).labels("a", "b").set(figure)
    ours.set(("a", "b"), figure)
    assert ours.text() == generate_latest(registry).decode()


def test_a_histogram_that_is_dropped_begins_again() -> None:
    ours = HistogramSeries("took", "Seconds.", LABELS, buckets=BUCKETS)
    ours.observe(("a", "b"), 1.0)
    ours.remove(("a", "b"))
    ours.observe(("a", "b"), 1.0)
    assert 'took_count{name="b",namespace="a"} 1.0' in ours.text()
