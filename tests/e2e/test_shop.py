"""The five examples of the shop, applied side by side as they are, each row compared with Kafka's log."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from typing import Final

import pytest

from demo.scene import EXAMPLES, Scene
from demo.sessions import DELAY, closed
from fencepost.fence import FenceRow
from flights.ledger import Ledger
from flights.loader import Loader
from harness.waiting import eventually
from shop.comparison import read_arrivals, read_tables
from shop.expectation import Arrival, differences, expected
from shop.feeds import Shop
from testbed.environment import Environment

pytestmark = [pytest.mark.e2e, pytest.mark.long, pytest.mark.timeout(1800)]

RECORDS: Final = 40_000
"""Of each topic: two hours, so that some of the sessions are over."""


@pytest.fixture
def scenes(environment: Environment) -> Iterator[list[Scene]]:
    """Return the stage of each example, with its tables and empty topics; all are in one namespace."""
    folders = sorted(path.parent for path in (EXAMPLES / "shop").glob("*/pipeline.yaml"))
    with ExitStack() as stack:
        found = [stack.enter_context(Scene.of(environment, f"shop/{folder.name}")) for folder in folders]
        for scene in found:
            scene.clear()
        for scene in found:
            scene.prepare()
        yield found
        for scene in found:
            scene.clear()


@pytest.fixture
def logs(scenes: list[Scene], environment: Environment) -> Callable[[Scene], list[Arrival]]:
    """Produce the records of all topics; return what reads the log of an example's topics."""
    topics = {topic for scene in scenes for topic in scene.topics}
    found: dict[str, list[Arrival]] = {}
    for topic in topics:
        ledger = Ledger(topic, topic)
        Loader(environment.kafka_host, Shop().feed(topic), ledger).load(RECORDS)
        found[topic] = read_arrivals(environment.kafka_host, [topic])
        assert len(found[topic]) == len(ledger) == RECORDS
    return lambda scene: [record for topic in scene.topics for record in found[topic]]


def test_every_row_of_every_example_is_that_of_the_log(
    scenes: list[Scene], logs: Callable[[Scene], list[Arrival]]
) -> None:
    for scene in scenes:
        scene.apply()
    differing = {}
    for scene in scenes:
        log = logs(scene)
        committed(scene, log)
        if scene.name == "sessions":
            closed(scene, max(view.at for view in log) - DELAY)
        found = read_tables(scene.cassandra, scene.tables)
        assert all(found.values())
        differing[scene.name] = differences(found, expected(scene.name, log, found))
    assert not any(differing.values()), differing


def committed(scene: Scene, log: list[Arrival]) -> FenceRow:
    """Wait until an example has committed its whole log."""
    ends: dict[str, int] = {}
    for record in log:
        key = f"{record.topic}/{record.partition}"
        ends[key] = max(ends.get(key, 0), record.offset + 1)

    def all_of_it() -> FenceRow | None:
        row = scene.fence()
        return row if row is not None and {key: row.offsets.get(key) for key in ends} == ends else None

    return eventually(f"{scene.name} commits everything", all_of_it, seconds=600)
