"""What Cassandra keeps of a state over a long run, with the intervals of the product."""

from __future__ import annotations

import random
from collections import deque
from uuid import UUID

from fencepost.driver.watchdogs import COLLECT_INTERVAL
from fencepost.fence.patience import Patience
from fencepost.state.collector import Collector
from fencepost.state.file_ids import FileIds
from unit.state.test_collector import working
from unit.state.world import World

RETAINED = 100
"""Batches whose files Spark keeps: spark.sql.streaming.minBatchesToRetain."""
BATCH = 2.0
"""Seconds."""
HOUR = 3600.0


def test_the_tables_hold_less_than_three_times_the_state() -> None:
    world = World(random.Random(1))
    working(world)
    ids = FileIds(world.index, Patience(5, world.clock.monotonic, world.clock.sleep))
    state: deque[UUID] = deque(maxlen=RETAINED)
    collector = Collector(
        world.fence(),
        world.row,
        chunks=world.chunks,
        index=world.index,
        serving=lambda: {*state, *ids.unused},
        snapshots=tuple,
    )
    largest, due = 0, COLLECT_INTERVAL
    for number in range(round(HOUR / BATCH)):
        file = ids.next()
        world.chunks.write(file, {0: b"a changelog"})
        state.append(file)
        world.clock.sleep(BATCH)
        if world.clock.monotonic() >= due:
            collector.collect()
            due = world.clock.monotonic() + COLLECT_INTERVAL
        if number >= RETAINED:
            largest = max(largest, len(world.chunks.files))
    assert largest < 3 * RETAINED
