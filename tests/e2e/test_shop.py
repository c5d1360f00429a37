"""The five examples of the shop, applied as they are, each row compared with Kafka's log."""

from __future__ import annotations

from collections.abc import Iterator
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

pytestmark = [pytest.mark.e2e, pytest.mark.long, pytest.mark.timeout(900)]

RECORDS: Final = 40_000
"""Of each topic: two hours, so that some of the sessions are over."""


# One after another: the workers of all five ask for more CPUs than the testbed's nodes have.
@pytest.fixture(params=sorted(path.parent.name for path in (EXAMPLES / "shop").glob("*/pipeline.yaml")))
def scene(request: pytest.FixtureRequest, environment: Environment) -> Iterator[Scene]:
    """Return the stage of an example, with its tables and topics."""
    with Scene.of(environment, f"shop/{request.param}") as found:
        found.clear()
        found.prepare()
        yield found
        found.clear()


def test_every_row_of_an_example_is_that_of_the_log(scene: Scene) -> None:
    kafka = scene.environment.kafka_host
    for topic in scene.topics:
        Loader(kafka, Shop().feed(topic), Ledger(topic, topic)).load(RECORDS)
    scene.apply()
    log = read_arrivals(kafka, scene.topics)
    assert len(log) == RECORDS * len(scene.topics)
    committed(scene, log)
    if scene.name == "sessions":
        closed(scene, max(view.at for view in log) - DELAY)
    found = read_tables(scene.cassandra, scene.tables)
    assert all(found.values())
    assert differences(found, expected(scene.name, log, found)) == []


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
