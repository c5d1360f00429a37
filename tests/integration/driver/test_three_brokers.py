"""A driver on three brokers: leaders that die, and an election that loses what was acknowledged."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from brokers.campaign import USERS, caught_up, seen
from brokers.checker import violations
from brokers.drivers import Drivers
from brokers.faults import UNDONE
from brokers.leaders import Replicas
from brokers.producer import Load
from fencepost.contract import ExitCode
from harness.kafka_log import read_log
from harness.waiting import eventually
from integration.driver.support import Pipeline
from integration.kafka.brokers import Cluster
from present import present
from testbed.environment import Environment

pytestmark = pytest.mark.integration

Make = Callable[..., Pipeline]


@pytest.fixture
def cluster(environment: Environment, tmp_path: Path) -> Iterator[Cluster]:
    folder = tmp_path / "kafka"
    one = Cluster.start_apart(str(environment.docker), folder, USERS, replica_lag_time_max_ms="3000")
    yield one
    one.remove()


@pytest.mark.long
def test_after_an_unclean_election_the_table_is_what_kafka_still_holds(pipeline: Make, cluster: Cluster) -> None:
    """The new leader's log has not grown to the committed offset when the loss is found."""
    settings = {"min.insync.replicas": "1", "unclean.leader.election.enable": "true"}
    one = pipeline(servers=cluster.servers, replicas=3, topic=settings)
    load = Load(cluster.servers, one.topic, random.Random(1), idempotent=False)
    replicas = Replicas(cluster, one.topic)
    load.fill(0, 100)
    one.start()
    one.wait_committed(100)
    first = present(replicas.leaders()[0].node)
    leader = replicas.broker(first)
    followers = [broker for broker in cluster.brokers if broker is not leader]
    for follower in followers:
        follower.cut(to=leader.port)
    load.fill(0, 60)  # with nothing to fetch, a follower stays in sync
    eventually("the leader to be alone", lambda: replicas.leaders()[0].in_sync == (first,), seconds=120)
    one.wait_committed(160)
    leader.crash()
    await_other_leader(replicas, first)
    start = len(read_log(cluster.servers, one.topic))  # the followers had asked for something before they were cut off
    assert 100 <= start < 140
    load.fill(0, 20)
    run = one.runs[-1]
    assert run.wait() == ExitCode.DATA_LOSS, run.log.read_text()[-4000:]
    report = one.recorded(run.verdict().loss)
    assert report.loss.ranges == {f"{one.topic}/0": (start, 160)}
    for follower in followers:
        follower.heal(to=leader.port)
    leader.start()
    one.accept(report.loss)
    one.start()
    drivers = Drivers(one, random.Random(1), print, accepted=[report])
    assert caught_up(one, load, drivers, cluster, print) == []
    one.runs[-1].stop()
    assert violations(seen(one, load, drivers, cluster, keeps=False)) == []


@pytest.mark.long
def test_a_broker_that_is_cut_off_from_the_controller_is_not_asked_who_leads(cluster: Cluster) -> None:
    """It names itself, and a client asks the broker that it asked last: each of the three is that one once."""
    cluster.create("elections", [[1, 2, 3], [2, 3, 1], [3, 1, 2]])
    replicas = Replicas(cluster, "elections")
    begin, end = UNDONE["deaf"]
    for number, broker in enumerate(cluster.brokers):
        replicas.settle()
        assert replicas.leaders()[number].node == broker.node
        begin(broker)
        await_other_leader(replicas, broker.node, number)
        end(broker)


@pytest.mark.long
@pytest.mark.timeout(1500)
@pytest.mark.parametrize("fault", sorted(UNDONE))
def test_a_leader_that_fails_under_load_loses_and_doubles_nothing(fault: str, pipeline: Make, cluster: Cluster) -> None:
    settings = {"min.insync.replicas": "2", "unclean.leader.election.enable": "false"}
    one = pipeline(servers=cluster.servers, replicas=3, topic=settings)
    load = Load(cluster.servers, one.topic, random.Random(1), idempotent=True)
    replicas = Replicas(cluster, one.topic)
    begin, end = UNDONE[fault]
    one.start()
    with load.flowing():
        one.wait_committed(100)
        first = present(replicas.leaders()[0].node)
        begin(replicas.broker(first))
        await_other_leader(replicas, first)
        one.wait_committed(one.committed_records() + 100)
        end(replicas.broker(first))
        replicas.settle()
    drivers = Drivers(one, random.Random(1), print)
    assert caught_up(one, load, drivers, cluster, print) == []
    one.runs[-1].stop()
    assert violations(seen(one, load, drivers, cluster, keeps=True)) == []


def await_other_leader(replicas: Replicas, node: int, number: int = 0) -> None:
    eventually("another leader", lambda: replicas.leaders()[number].node not in {None, node}, seconds=120)
