"""`fencepost advise` on histories that the loop, the fence and the history's own code have written."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from fencepost.batch import WorkerMemory
from fencepost.fence import FenceRow
from unit.cli.world import World, history
from unit.driver.loop_world import FakeLog
from unit.driver.loop_world import World as Driver

MIB = 1024**2
WORKER, DRIVER = 2048 * MIB, 1408 * MIB
"""The limits of the spec's defaults."""
DAY = timedelta(minutes=30)
"""Between two changes: fifty batches and more take longer than a day."""


def rows(
    *,
    records: int = 5000,
    limit: int = 100,
    seconds: float = 10.0,
    worker: int = 300 * MIB,
    of: int = WORKER,
    size: int = 100,
    cores: int = 1,
    driver: Driver | None = None,
) -> list[FenceRow]:
    """A run of the loop on a backlog: each batch reads as much as it may, in so many seconds, on so much memory."""
    world = driver or Driver()
    world.log = FakeLog(ends={"t/0": records // 2, "t/1": records - records // 2})
    clock = [0.0]
    loop, engine = world.loop(world.take_over(), limit=limit, now=lambda: clock[0])

    def work() -> None:
        clock[0] += seconds

    engine.before, engine.record_size, engine.cores = work, size, cores
    engine.memory = WorkerMemory(container=worker, limit=of, python=worker // 4, jvm=worker // 2)
    loop.run()
    return world.table.history


def scene(found: list[FenceRow], *, every: timedelta = DAY, **spec: Any) -> World:
    return World(row=found[-1], records=history(found, every=every), spec_changes=spec)


def advice(world: World, *words: str) -> Mapping[str, Mapping[str, str]]:
    printed = world.json("advise", "shop/orders", *words)
    return {one["field"]: one for one in printed["advice"]}


def of(world: World, field: str, *words: str) -> tuple[str, str | None]:
    found = advice(world, *words)[f"spec.{field}"]
    return found["advice"], found["value"]


@pytest.mark.parametrize(
    ("worker", "every", "expected"),
    [
        (1900, DAY, ("change", "2816Mi")),
        (1900, timedelta(seconds=1), ("change", "2816Mi")),
        (1500, DAY, ("keep", None)),
        (600, DAY, ("change", "1Gi")),
        (600, timedelta(minutes=1), ("not enough history", None)),
    ],
)
def test_memory_is_raised_at_once_and_lowered_after_a_day_and_a_backlog(
    worker: int, every: timedelta, expected: tuple[str, str | None]
) -> None:
    world = scene(rows(worker=worker * MIB), every=every)
    assert of(world, "cluster.worker.memory") == expected
    because = advice(world)["spec.cluster.worker.memory"]["because"]
    assert f"{worker:,} MiB of its 2,048 MiB ({worker / 2048:.0%}) in 50 commits" in because


def test_without_a_backlog_memory_is_not_lowered() -> None:
    found = rows(worker=300 * MIB)
    small = [replace(row, figures={**row.figures, "limit": 10_000} if row.figures else {}) for row in found]
    assert of(scene(small), "cluster.worker.memory") == ("not enough history", None)
    assert "a backlog is needed" in advice(scene(small))["spec.cluster.worker.memory"]["because"]


def test_ten_commits_are_needed() -> None:
    assert of(scene(rows(records=900, worker=2000 * MIB)), "cluster.worker.memory") == ("not enough history", None)
    assert of(scene(rows(records=1000, worker=2000 * MIB)), "cluster.worker.memory")[0] == "change"


def test_resources_of_the_spec_are_what_is_to_be_changed() -> None:
    cluster = {"worker": {"resources": {"limits": {"memory": "4Gi"}}}}
    world = scene(rows(worker=3900 * MIB, of=4096 * MIB), cluster=cluster)
    assert of(world, "cluster.worker.resources.limits.memory") == ("change", "5632Mi")


def test_commits_under_another_limit_say_nothing_of_the_spec_s() -> None:
    world = scene(rows(worker=1000 * MIB, of=1024 * MIB))
    assert of(world, "cluster.worker.memory") == ("not enough history", None)
    assert "under a limit of 1,024 MiB" in advice(world)["spec.cluster.worker.memory"]["because"]


def test_what_is_advised_of_is_the_newest_limit_and_code() -> None:
    driver = Driver()
    rows(worker=1000 * MIB, of=1024 * MIB, driver=driver)
    found = rows(records=10_000, worker=1100 * MIB, driver=driver)
    printed = scene(found).json("advise", "shop/orders")
    assert (printed["history"]["commits"], printed["history"]["epochs"]) == (50, 1)
    assert printed["history"]["peakBytes"]["worker_container"] == 1100 * MIB
    other = [replace(row, code="new" if row.epoch > 1 else "old") for row in rows(worker=1900 * MIB)]
    assert scene(other).json("advise", "shop/orders")["history"]["code"] == "old"


def test_the_driver_is_sized_by_its_heap() -> None:
    figures = {"driver_container": 1390 * MIB, "driver_limit": DRIVER}
    found = [replace(row, figures={**row.figures, **figures} if row.figures else {}) for row in rows()]
    assert of(scene(found), "job.memory") == ("change", "1792Mi")


def test_workers_follow_from_the_rate_of_a_backlog() -> None:
    """100 records in 10 s are done, and 5,000 in 24.5 h arrive."""
    world = scene(rows())
    assert of(world, "cluster.workers") == ("keep", None)
    backlog = world.json("advise", "shop/orders")["backlog"]
    assert (backlog["donePerSecond"], round(backlog["arrivingPerSecond"], 2)) == (10.0, 0.06)
    assert backlog["dayTakesSeconds"] == pytest.approx(86_400 * backlog["arrivingPerSecond"] / 9.94, rel=0.01)


def test_a_pipeline_that_cannot_keep_up_needs_workers() -> None:
    """One record in a second is done, and a few more arrive: a day more in half a day needs three times that."""
    world = scene(rows(records=100_000, limit=1000, seconds=1000.0), every=timedelta(seconds=1000))
    assert of(world, "cluster.workers", "--catch-up", "12h") == ("change", "4")
    assert of(world, "cluster.workers", "--catch-up", "1h") == ("change", "26")
    assert world.json("advise", "shop/orders")["backlog"]["dayTakesSeconds"] is None
    assert "never ends" in world.run("advise", "shop/orders").stdout


def test_workers_are_lowered_after_a_day_alone() -> None:
    cluster = {"workers": 8, "worker": {"memory": "2Gi"}}
    assert of(scene(rows(cores=8), cluster=cluster), "cluster.workers") == ("change", "1")
    early = scene(rows(cores=8), cluster=cluster, every=timedelta(minutes=2))
    assert of(early, "cluster.workers") == ("not enough history", None)


def test_a_pipeline_without_workers_is_sized_by_its_driver() -> None:
    """256 MiB of the driver's pod are for the Python worker of its one task."""
    limit = DRIVER + 256 * MIB
    figures = {"driver_container": 1650 * MIB, "driver_limit": limit}
    found = [replace(row, figures={**row.figures, **figures} if row.figures else {}) for row in rows(of=limit)]
    alone = scene(found, cluster={"workers": 0})
    assert "spec.cluster.worker.memory" not in advice(alone)
    assert of(alone, "job.memory") == ("change", "1792Mi"), "2048 MiB of heap, were it not for the Python worker"
    assert of(alone, "cluster.workers") == ("keep", None)
    cost = alone.json("advise", "shop/orders")["costPerMillion"]
    assert cost["backlogGibHours"] == pytest.approx(limit / 1024**3 * 10 / 100 * 1e6 / 3600)
    slow = rows(records=100_000, limit=1000, seconds=1000.0)
    late = scene(slow, every=timedelta(seconds=1000), cluster={"workers": 0})
    assert of(late, "cluster.workers", "--catch-up", "12h") == ("change", "4")


def test_the_rate_is_that_with_the_newest_number_of_cores() -> None:
    driver = Driver()
    rows(cores=2, seconds=1.0, driver=driver)
    found = rows(records=5200, cores=1, driver=driver)
    world = scene(found)
    assert of(world, "cluster.workers") == ("not enough history", None)
    assert "2 batches with 1 cores" in advice(world)["spec.cluster.workers"]["because"]


@pytest.mark.parametrize(
    ("seconds", "size", "worker", "expected"),
    [
        (0.5, 100, 300, ("change", "1000")),
        (2.0, 100, 300, ("change", "250")),
        (0.5, 2**20, 300, ("change", "300")),
        (0.5, 100, 1600, ("keep", None)),
        (7.0, 100, 300, ("keep", None)),
    ],
)
def test_a_batch_grows_where_records_bound_it_and_there_is_time_and_memory(
    seconds: float, size: int, worker: int, expected: tuple[str, str | None]
) -> None:
    source = {"kafka": {"bootstrapServers": "k:9092", "topics": ["orders"], "maxRecordsPerBatch": 100}}
    world = scene(rows(seconds=seconds, size=size, worker=worker * MIB), source=source)
    assert of(world, "source.kafka.maxRecordsPerBatch") == expected


def test_batches_that_time_or_bytes_bound_are_left() -> None:
    assert of(scene(rows()), "source.kafka.targetBatchDuration") == ("keep", None)
    assert of(scene(rows(size=3 * 2**20)), "source.kafka.maxBytesPerBatch") == ("keep", None)


def test_a_million_rows_cost_what_the_pods_request_for_them() -> None:
    world = scene(rows())
    printed = world.json("advise", "shop/orders")
    cost, span = printed["costPerMillion"], printed["history"]
    assert (span["records"], span["rows"], cost["unit"]) == (5000, 5000, "rows")
    hours = 10 / 100 * 1e6 / 3600
    assert cost["backlogCoreHours"] == pytest.approx((0.5 + 0.2 + 0.1) * hours)
    assert cost["backlogGibHours"] == pytest.approx((2048 + 1408 + 448) / 1024 * hours)
    assert cost["coreHours"] > cost["backlogCoreHours"]


def test_a_state_s_room_is_twice_what_it_takes() -> None:
    found = [replace(row, state_bytes=900 * MIB) for row in rows()]
    stateful: dict[str, Any] = {
        "job": {"image": "registry.example/job:1", "entrypoint": "orders.job:stream", "mode": "Stateful"}
    }
    large = scene(found, **stateful, state={"maxBytes": "1Gi"})
    assert of(large, "state.maxBytes") == ("change", "2Gi")
    assert of(scene(found, **stateful, state={"maxBytes": "2Gi"}), "state.maxBytes") == ("keep", None)
    assert of(scene(found, **stateful), "state.maxBytes") == ("change", "2Gi")
    assert "900 MiB" in large.run("advise", "shop/orders").stdout


def test_a_history_without_figures_is_not_guessed_from() -> None:
    world = scene([replace(row, figures={}) for row in rows()])
    found = advice(world)
    assert {one["advice"] for one in found.values()} == {"not enough history"}
    assert "a driver of this release records it" in found["spec.job.memory"]["because"]


def test_a_history_without_a_commit_says_so() -> None:
    world = World.usual()
    world.records = world.records[:1]
    ended = world.run("advise", "shop/orders")
    assert (ended.exit_code, "not enough history" in ended.stdout) == (0, True)
    printed = world.json("advise", "shop/orders")
    assert (printed["history"], printed["advice"]) == (None, [])


def test_since_leaves_out_what_came_before() -> None:
    world = scene(rows(), every=timedelta(minutes=30))
    assert world.json("advise", "shop/orders", "--since", "121m")["history"]["commits"] < 6
    assert "--catch-up" in world.refused("advise", "shop/orders", "--catch-up", "0h")


def test_a_terminal_shows_the_same_and_no_markup_of_the_code_s_name() -> None:
    found = [replace(row, code="image [red]x\x1b[2J:job") if row.driver else row for row in rows()]
    ended = scene(found).run("advise", "shop/orders")
    assert ended.exit_code == 0, ended.output
    assert "\x1b" not in ended.stdout
    assert "[red]x" in ended.stdout
    for text in ("core-hours", "spec.cluster.worker.memory", "worker, JVM of the executor", "50 commits in 1 epochs"):
        assert text in ended.stdout


def test_the_history_shows_a_state() -> None:
    found = [replace(row, state_bytes=900, figures={**row.figures, "state_chunks": 3}) for row in rows(records=300)]
    world = scene(found)
    newest = world.json("fence", "history", "shop/orders")["changes"][0]
    assert (newest["stateBytes"], newest["stateChunks"], newest["bytes"], newest["rows"]) == (900, 3, 10_000, 100)
    assert "CHUNKS" in world.run("fence", "history", "shop/orders").stdout
    assert "CHUNKS" not in World.usual().run("fence", "history", "shop/orders").stdout
