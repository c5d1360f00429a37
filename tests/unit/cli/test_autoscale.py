"""`fencepost autoscale backtest` on histories that the loop and the fence have written."""

from __future__ import annotations

from datetime import timedelta

import pytest

from fencepost_cli.history.backtest import past
from fencepost_cli.history.reading import in_order
from unit.cli.test_advise import rows, scene


def test_a_backlog_is_played_with_the_rate_of_its_full_batches() -> None:
    world = scene(rows(), every=timedelta(seconds=10))
    found = world.json("autoscale", "backtest", "shop/orders", "--max", "4")
    assert found["recordsPerSecond"] == 10.0, "100 records in 10 s on one core"
    assert found["autoscale"]["chosen"][0]["workers"] == 1
    assert found["autoscale"]["workerHours"] > 0
    assert found["fixed"]["workerHours"] > 0


def test_all_records_that_waited_or_arrived_are_played() -> None:
    world = scene(rows(), every=timedelta(seconds=10))
    seen = past(in_order("shop/orders", lambda hour: [r for r in world.records if r.hour == hour]), since=None)
    assert seen is not None
    assert sum(seen.arrived) == pytest.approx(5000, abs=200)


def test_what_it_prints_has_both_outcomes() -> None:
    world = scene(rows(), every=timedelta(seconds=10))
    printed = world.run("autoscale", "backtest", "shop/orders")
    assert "begins with minWorkers" in printed.stdout
    assert "Always 1" in printed.stdout
