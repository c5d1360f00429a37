"""The trend of a figure over a soak."""

from __future__ import annotations

import pytest

from soak.trend import Trend

HOURS = [minute / 60 for minute in range(120)]


def test_a_leak_has_the_slope_of_the_leak() -> None:
    leak = Trend("rss", "MiB", HOURS, [100 + 12 * hour for hour in HOURS])
    assert leak.slope == pytest.approx(12)
    assert leak.tenth(last=True) > leak.tenth(last=False)


def test_a_single_outlier_is_not_a_slope() -> None:
    values = [100.0] * len(HOURS)
    values[60] = 500.0
    assert Trend("rss", "MiB", HOURS, values).slope == 0


def test_a_sawtooth_that_returns_is_not_a_slope() -> None:
    values = [100.0 + minute % 10 for minute in range(120)]
    assert Trend("heap", "MiB", HOURS, values).slope == pytest.approx(0, abs=0.5)


def test_a_figure_that_was_never_read_says_so() -> None:
    assert Trend("heap", "MiB", [], []).cells() == ("heap", "0", "", "", "", "", "MiB")
