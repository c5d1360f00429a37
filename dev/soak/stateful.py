"""Hours of a stateful pipeline under steady load, whose driver is killed now and then.

What is stored must stay bounded: the watermark moves on, hours leave the state, and the files of old versions go.
At the end every count is compared with a plain count of what was produced.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from datetime import UTC, datetime
from typing import Any, Final, TypeAlias

from bench import heap
from bench.samples import Result
from bench.stage import wait_for_commit
from demo.scene import EXAMPLES, Scene
from e2e.places import prepared
from e2e.stream import Stream, address, create_table
from fencepost.fence import FenceRow
from fencepost_cli.history.checks import check_history
from flights.console import Console
from flights.disorder import in_time, unordered_flights
from flights.expectation import hourly_departures
from flights.history import read_history
from flights.sink import session
from flights.topics import Topics
from harness.kubernetes.kubectl import Kubectl
from harness.kubernetes.nodes import Nodes
from harness.load import Load
from harness.pipelines import Pipeline, Place, code
from harness.waiting import eventually
from soak.figures_by_name import Trends
from soak.resources import Figure, figures
from soak.state_figures import StateFigures
from testbed.cluster import WORKERS
from testbed.environment import Environment, load

EXAMPLE: Final = "hourly-departures"
RATE: Final = 400.0
"""Records per second: a year of flights in 14 minutes."""
FIRST_RECORDS: Final = 20_000
WARM_UP_SECONDS: Final = 120.0
SAMPLE_SECONDS: Final = 60.0
TABLE_EVERY: Final = 15
"""Samples between two tables."""
DRAINED_SECONDS: Final = 300.0
SPEC: Final[dict[str, Any]] = {
    "batchInterval": "2s",
    "cluster": {"sparkConf": dict(heap.LOGGED)},
    "snapshots": {"every": "10m", "keep": {"count": 3}},
    # Two days of flights: whether one that is weeks late counts must not depend on where a batch begins.
    "source": {"kafka": {"maxRecordsPerBatch": 2000}},
}

Counts: TypeAlias = Mapping[tuple[str, datetime], int]
"""Departures by airport and hour."""


def run(console: Console, *, hours: float, kill_minutes: float) -> Result:
    """Keep the example under load for so long, sample once per minute, kill its driver every `kill_minutes`."""
    trends, kills = Trends(), 0
    with _staged() as (stream, scene):
        stream.load.burst(FIRST_RECORDS)
        wait_for_commit(scene)
        stored = StateFigures(scene)

        looks: list[Callable[[], Iterable[Figure]]] = [
            lambda: figures(scene),
            stored.kept,
            stored.scratch,
            lambda: _heaps(scene),
        ]
        with stream.load.flowing(RATE):
            time.sleep(WARM_UP_SECONDS)
            first, began = scene.fence(), time.monotonic()
            hours_so_far = 0.0
            try:
                for number in range(1, int(hours * 3600 / SAMPLE_SECONDS) + 1):
                    hours_so_far = (time.monotonic() - began) / 3600
                    for look in looks:
                        _sampled(console, trends, hours_so_far, look)
                    if number % round(kill_minutes * 60 / SAMPLE_SECONDS) == 0:
                        kills += 1
                        _sampled(console, trends, hours_so_far, lambda: [_recovery(scene)])
                    console.line(f"stateful: {number} of {hours * 60:.0f} min, {kills} kills")
                    if number % TABLE_EVERY == 0:
                        trends.show(console)
                    time.sleep(max(0.0, began + number * SAMPLE_SECONDS - time.monotonic()))
            except KeyboardInterrupt:  # Ctrl-C ends the soak early, with the figures so far
                console.line("stateful: interrupted")
        row = _drained(stream, scene)
        notes = [*_compared(stream, scene, row), *_history(scene, kills)]
    trends.show(console)
    return Result(
        "soak-stateful",
        trends.samples(),
        {
            "hours": round(hours_so_far, 2),
            "records per second": RATE,
            "records": sum(row.offsets.values()),
            "kills": kills,
            "changes of the fence row": row.version - (first.version if first is not None else 0),
        },
        notes,
    )


@contextmanager
def _staged() -> Iterator[tuple[Stream, Scene]]:
    """Yield the example as a pipeline of a namespace, an image and keyspaces of its own; after a failure it stays."""
    environment = load()
    with prepared(environment, "soak", waits=True) as place, session(address(place)) as opened:
        nodes = Nodes.of(environment)
        for node in WORKERS:  # so that an operator of another build neither replaces nor removes it
            nodes.tag(node, environment.job_image, place.second_image)
        stream = _applied(place)
        yield stream, _scene(environment, opened, nodes, stream)
        stream.pipeline.delete()
        Topics(environment.kafka_host).delete(stream.load.ledger.topic)
        for node in WORKERS:
            nodes.untag(node, place.second_image)


def _applied(place: Place) -> Stream:
    topic, table = f"{place.namespace}-{EXAMPLE}", EXAMPLE.replace("-", "_")
    flow = Load.to(place.environment.kafka_host, topic, unordered_flights())
    create_table(place, table, EXAMPLE)
    kubectl = Kubectl.of(place.environment, place.namespace)
    kubectl.apply(code(EXAMPLE))
    stream = Stream(
        place=place,
        pipeline=Pipeline(kubectl, EXAMPLE),
        load=flow,
        table=table,
        spec={**SPEC, "job": {"image": place.second_image}},
        example=EXAMPLE,
    )
    stream.apply()
    return stream


def _scene(environment: Environment, cassandra: Any, nodes: Nodes, stream: Stream) -> Scene:
    return Scene(
        environment=environment,
        cassandra=cassandra,
        kubectl=stream.pipeline.kubectl,
        nodes=nodes,
        folder=EXAMPLES / EXAMPLE,
        manifest=stream.manifest(),
    )


def _sampled(console: Console, trends: Trends, hours: float, look: Callable[[], Iterable[Figure]]) -> None:
    """Add what `look` finds; while the testbed does not answer, what it found before."""
    try:
        for figure in look():
            trends.add(hours, figure)
    except Exception as error:  # noqa: BLE001 - whatever it is, the soak outlives it, and the log says it
        console.line(f"stateful: a sample is missing: {type(error).__name__}: {error}")


def _heaps(scene: Scene) -> Iterator[Figure]:
    """Yield what is left of each heap after its newest collections."""
    for role in ("driver", "worker"):
        trend = heap.after_collections(scene, role)
        if trend.values:
            yield Figure(trend.name, trend.unit, trend.values[-1])


def _recovery(scene: Scene) -> Figure:
    """Kill the driver with SIGKILL; return the seconds until a later epoch has committed."""
    row = scene.fence()
    epoch = row.epoch if row is not None else 0
    scene.signal_driver("KILL")
    began = time.monotonic()
    wait_for_commit(scene, epoch=epoch + 1, past=sum(row.offsets.values()) if row is not None else 0)
    return Figure("SIGKILL to the next commit", "s", time.monotonic() - began)


def _drained(stream: Stream, scene: Scene) -> FenceRow:
    """Wait until all that was produced is committed; return the fence row."""
    ends = stream.load.ends()

    def drained() -> FenceRow | None:
        row = scene.fence()
        return row if row is not None and {key: row.offsets.get(key) for key in ends} == ends else None

    return eventually(f"{stream.pipeline.name} commits everything", drained, seconds=DRAINED_SECONDS)


def _compared(stream: Stream, scene: Scene, row: FenceRow) -> Iterator[str]:
    """Compare every count with a plain count of what was produced in time, and what is missing with the late rows."""
    punctual = list(in_time(stream.load.ledger))
    expected = hourly_departures(punctual)
    (table,) = scene.tables
    rows = scene.cassandra.execute(f"SELECT origin, hour, departures FROM {table}")  # noqa: S608
    found = {(row.origin, row.hour.replace(tzinfo=UTC)): row.departures for row in rows}
    missing, extra = expected.keys() - found.keys(), found.keys() - expected.keys()
    wrong = sorted(key for key in expected.keys() & found.keys() if expected[key] != found[key])
    yield (
        f"{len(stream.load.ledger):,} records, {len(expected):,} hours expected, {len(found):,} found:"
        f" {len(missing)} are missing, {len(extra)} too many, {len(wrong)} have another count"
    )
    for key in wrong[:5]:
        yield f"{key[0]} at {key[1]}: {found[key]}, expected {expected[key]}"
    feed, placed = unordered_flights(), stream.load.ledger.partitions.values()
    produced = hourly_departures(feed.event(number) for each in placed for number in each.numbers)
    yield accounted(produced=produced, expected=expected, found=found, late_rows=row.late_rows)


def accounted(*, produced: Counts, expected: Counts, found: Counts, late_rows: int) -> str:
    """Return how much of what is missing Spark may have dropped as late; the rest is lost.

    `produced` counts all departures, `expected` those that are not late by design.  A dropped row stands for one or
    more of them, and the rows of the last batch before a kill are not counted: so what is lost is at most this.
    """
    by_design = sum(produced.values()) - sum(expected.values())
    missing = sum(max(0, count - found.get(key, 0)) for key, count in expected.items())
    surplus = sum(max(0, count - expected.get(key, 0)) for key, count in found.items())
    uncounted = sum(max(0, count - found.get(key, 0)) for key, count in produced.items())
    lost = min(missing, max(0, uncounted - late_rows))
    return (
        f"{missing:,} departures are missing, {surplus:,} too many, and {by_design:,} are weeks late by design;"
        f" {late_rows:,} rows were dropped as late, so at most {lost:,} departures are lost"
    )


def _history(scene: Scene, kills: int) -> Iterator[str]:
    story = check_history(read_history(scene.cassandra, scene.fence_keyspace, scene.key))
    yield from story.lines()
    if story.gaps > kills:
        yield f"{story.gaps} changes are not on record, with {kills} kills"
