"""Faults of a stateful pipeline's Cassandra, on real Kafka, Cassandra and Spark."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Final

import pytest

from fakes.relay import relay_to
from fencepost.contract import CassandraEndpoint, ExitCode
from fencepost.fence import FenceRow
from fencepost.state.progress import unpack_committed
from harness.monitoring.page_receivers import Hooks, hooks
from harness.waiting import eventually
from integration.driver.support import Pipeline
from integration.driver.test_stateful_run import DELAY, check, counting, records
from present import present
from testbed.environment import Environment

pytestmark = pytest.mark.integration

Make = Callable[..., Pipeline]
SOME: Final = 4800
"""Records of a test: the last ones close windows of the first ones, and some are too late."""


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


def test_lost_answers_at_each_plan_and_commit_are_settled(pipeline: Make, hub: Hooks) -> None:
    """Injected: each lightweight transaction of the run times out, first without its effect, then with it."""
    one, sent = counting(pipeline), records()[:SOME]
    faulty(one, hub, "lost-answers")
    one.kafka.send(one.topic, sent)
    one.start()
    finish(one)
    assert len(hub.got("/lost")) > 2 * batch(one.row())
    check(one, sent)


@pytest.mark.parametrize(
    "seconds", [pytest.param(30, id="30 s"), pytest.param(300, id="5 min", marks=pytest.mark.long)]
)
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
