"""Faults of a stateful pipeline's Cassandra, and of its own replaced driver, on real Kafka, Cassandra and Spark."""

from __future__ import annotations

import time
import uuid
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Final

import pytest

from fakes.relay import relay_to
from fencepost.contract import CassandraEndpoint, ExitCode
from fencepost.fence import FenceRow
from fencepost.fence.cassandra.snapshots import SnapshotTable
from fencepost.fence.snapshots import Trigger, snapshot_of
from fencepost.state.progress import unpack_committed
from harness.monitoring.page_receivers import Hooks, hooks
from harness.waiting import eventually
from integration.driver.support import Pipeline, Run
from integration.driver.test_stateful_run import DELAY, check, counting, records
from present import present
from testbed.environment import Environment

pytestmark = pytest.mark.integration

Make = Callable[..., Pipeline]
SOME: Final = 4800
"""Records of a test: the last ones close windows of the first ones, and some are too late."""
SMALL: Final = 80
"""Records of a batch, where a test needs many of them."""
REWOUND: Final = 20
"""Batches by which a rewind goes back, with RETAINED versions of the state; by default Spark retains 100."""
RETAINED: Final = 4


@pytest.fixture
def hub() -> Iterator[Hooks]:
    """Return what the faults of the pipeline's code ask."""
    with hooks() as found:
        yield found


def faulty(one: Pipeline, hub: Hooks, *faults: str) -> None:
    """Let the next run of the pipeline have faults."""
    args = (f"{DELAY} seconds", f"http://127.0.0.1:{hub.port}", *faults)
    one.config = replace(one.config, entrypoint="faulty_counts:stream", args=args)


def held(hub: Hooks, path: str) -> None:
    """Hold back the next call that asks for a path, and wait for it."""
    asked = len(hub.got(path))
    hub.statuses[path] = 503
    eventually(f"{path} is asked for", lambda: len(hub.got(path)) > asked + 1, seconds=120, pause=0.1)


@pytest.mark.long
def test_lost_answers_at_each_plan_and_commit_are_settled(pipeline: Make, hub: Hooks) -> None:
    """Injected: each lightweight transaction of the run times out, first without its effect, then with it."""
    one, sent = counting(pipeline), records()[:SOME]
    faulty(one, hub, "lost-answers")
    one.kafka.send(one.topic, sent)
    one.start()
    finish(one)
    assert len(hub.got("/lost")) > 2 * batch(one.row())
    check(one, sent)


@pytest.mark.long
@pytest.mark.parametrize("seconds", [pytest.param(30, id="30 s"), pytest.param(300, id="5 min")])
def test_a_cassandra_that_is_silent_during_an_upload_costs_nothing(
    pipeline: Make, hub: Hooks, environment: Environment, seconds: int
) -> None:
    """Injected: no request has an answer from before the chunks of a file are written; connections stay.

    Half a minute is waited out; after five minutes the run has ended, and the next one repeats the batch.
    """
    one, sent = counting(pipeline), records()[:SOME]
    faulty(one, hub, "held-writes")
    with relay_to(environment.cassandra_host, environment.cassandra_port) as relay:
        behind = CassandraEndpoint(contact_points=("127.0.0.1",), port=relay.port)
        one.config = replace(one.config, cassandra=behind, stall_timeout=180.0)
        run = one.start()
        one.kafka.send(one.topic, sent[: SOME // 2])
        one.wait_committed(SOME // 4)
        one.kafka.send(one.topic, sent[SOME // 2 :])
        held(hub, "/write")
        before = one.row()
        assert before.planned_log is not None
        relay.be_silent()
        del hub.statuses["/write"]
        time.sleep(seconds)
        assert one.row() == before
        if seconds > one.config.stall_timeout:
            assert run.wait() == ExitCode.DEPENDENCY_DOWN, run.log.read_text()[-6000:]
        relay.speak()
        finish(one)
    assert one.row().epoch == len(one.runs)
    check(one, sent)


@pytest.mark.long
def test_a_rewind_beyond_what_spark_retains_is_exact_while_the_old_driver_deletes_files(
    pipeline: Make, hub: Hooks
) -> None:
    """The old driver's maintenance deletes versions of the state while its successor begins at one of them.

    The old driver stands between the output and the commit of a batch, so it does not know of its successor.
    """
    one, sent = counting(pipeline, batch=SMALL), records()[:SOME]
    quick = {
        "spark.sql.streaming.minBatchesToRetain": str(RETAINED),
        "spark.sql.streaming.stateStore.minDeltasForSnapshot": "3",
        "spark.sql.streaming.stateStore.maintenanceInterval": "500ms",
    }
    one.config = replace(one.config, spark_conf={**one.config.spark_conf, **quick}, batch_interval=0.01)
    faulty(one, hub, "held-commits")
    one.kafka.send(one.topic, sent[: SOME // 2])
    old = one.start()
    one.wait_committed(200)
    target = one.row()
    keep(one, target)
    one.kafka.send(one.topic, sent[SOME // 2 :])
    one.wait_committed(sum(target.offsets.values()) + REWOUND * SMALL)
    assert batch(one.row()) >= batch(target) + REWOUND
    held(hub, "/delete")
    held(hub, "/commit")

    rewound(one, target)
    deleted = len(hub.got("/deleted"))
    del hub.statuses["/delete"]
    follow(one)
    eventually("the old driver deletes files", lambda: len(hub.got("/deleted")) > deleted, seconds=60)
    del hub.statuses["/commit"]
    assert old.wait() == ExitCode.FENCED, old.log.read_text()[-6000:]
    finish(one)
    check(one, sent)


def finish(one: Pipeline) -> None:
    """Let everything be committed; a run that ends for Cassandra's silence has a successor, as the operator's would."""

    def is_over() -> bool:
        return one.committed_records() >= SOME or one.runs[-1].process.poll() is not None

    while one.committed_records() < SOME:
        if (code := one.runs[-1].process.poll()) is not None:
            assert code == ExitCode.DEPENDENCY_DOWN, one.runs[-1].log.read_text()[-6000:]
            one.start()
        eventually("everything is committed, or the run is over", is_over, seconds=300)
    one.runs[-1].stop()


def batch(row: FenceRow) -> int:
    """Return the number of the last committed batch."""
    return present(unpack_committed(row.checkpoint)).batch


def keep(one: Pipeline, row: FenceRow) -> None:
    """Take a snapshot of a row as the operator does."""
    taken = snapshot_of(row, id=uuid.uuid1(), trigger=Trigger.ON_DEMAND, name=None)
    assert SnapshotTable(one.session, one.config.fence_keyspace).insert(one.config.pipeline, taken)


def rewound(one: Pipeline, target: FenceRow) -> None:
    """Take over, and go back to an earlier row, as the operator does."""
    taken = one.fence.take_over(one.row(), owner="test/test")
    one.fence.rewind(taken, offsets=target.offsets, leader_epochs={}, growth_barrier={}, checkpoint=target.checkpoint)


def follow(one: Pipeline) -> Run:
    """Start a run without faults."""
    one.config = replace(one.config, entrypoint="counts:stream", args=(f"{DELAY} seconds",))
    return one.start()
