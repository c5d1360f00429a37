"""A stateful pipeline on the cluster, under late and unordered load: the example hourly-departures.

One pipeline for all faults, in order. After each of them every row of the table and the whole state are those of a
plain count of Kafka's log.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Final

import pytest

from e2e.hourly_counts import of_state, of_table, plain_count
from e2e.recomputed import Compared
from e2e.stream import Applied, Stream, cassandra
from e2e.test_drain import exit_codes
from e2e.test_fencing import expect_fenced
from e2e.test_rewind import REWIND, ended, rewind
from fencepost.contract import ExitCode
from fencepost_operator.api import SNAPSHOT_ANNOTATION
from flights.disorder import HELD_BACK, unordered_flights
from harness.faults.cluster_faults import Faults
from harness.faults.node_loss import NodeLoss
from harness.kubernetes.kubectl import Kubectl
from harness.monitoring.page_receivers import Hooks, hooks
from harness.operator_replicas import two_operators
from harness.pipelines import KIND, PIPELINE_LABEL, Place, code, ending
from harness.waiting import eventually
from present import present
from testbed.cluster import DATA_NODE, WORKERS

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(900)]

EXAMPLE: Final = "hourly-departures"
TRACED: Final = Path(__file__).with_name("hourly_traced.py")
NAME: Final = "hourly"
CODE: Final = "hourly-traced-code"
GO: Final = "/go"
LOST: Final = next(node for node in WORKERS if node != DATA_NODE)
BACKLOG: Final = HELD_BACK + 2_000
"""Flights before the first fault: two weeks, so that hours have left the state and flights come that are weeks late."""
KILLS: Final = pytest.mark.parametrize("kills", [2, pytest.param(5, marks=pytest.mark.long)])
INDEX: Final = """
CREATE TABLE {0}_by_offset (
  pipeline text, topic text, partition int, bucket bigint, "offset" bigint, key blob, retention int,
  PRIMARY KEY ((pipeline, topic, partition, bucket), "offset", key))
"""


@pytest.fixture(scope="module")
def hub(faults: Faults) -> Iterator[Hooks]:
    """Return what commits of the pipeline ask whether they may continue."""
    with hooks(faults.nodes.host(DATA_NODE)) as found:
        yield found


@pytest.fixture(scope="module")
def hourly(applied: Applied, place: Place, kubectl: Kubectl, faults: Faults, hub: Hooks) -> Iterator[Compared]:
    """Return the pipeline, with two weeks of flights that come while it starts."""
    deploy(kubectl)
    with cassandra(place) as opened:
        replication = "{'class': 'SimpleStrategy', 'replication_factor': 1}"
        opened.execute(f"CREATE KEYSPACE IF NOT EXISTS {place.tables} WITH replication = {replication}")
        opened.execute(INDEX.format(f"{place.tables}.{NAME}"), timeout=60)
    stream = applied(
        NAME,
        example=EXAMPLE,
        feed=unordered_flights(),
        job={
            "codeFrom": {"configMapName": CODE},
            "entrypoint": f"{TRACED.stem}:stream",
            "args": [f"http://{faults.nodes.host(DATA_NODE)}:{hub.port}{GO}"],
            "terminationGracePeriodSeconds": 120,  # a zombie must outlive the order to end
        },
        source={"kafka": {"maxRecordsPerBatch": 2000}},
        sinks=[
            {
                "name": "hourly_departures",
                "cassandra": {"keyspace": place.tables, "table": NAME, "purgeIndex": {"retention": "168h"}},
            }
        ],
        restart={"maxBackoff": "2s", "stallTimeout": "20s"},
    )
    stream.load.burst(BACKLOG)
    stream.pipeline.wait_ready()
    yield Compared(stream, plain_count, of_table, of_state)
    stream.pipeline.delete()  # the tests that come after share the nodes


def deploy(kubectl: Kubectl, change: str = "") -> None:
    """Apply the ConfigMap of the pipeline's code; `change` makes it another one."""
    example = code(EXAMPLE)
    modules = {**example["data"], TRACED.name: TRACED.read_text() + change}
    kubectl.apply({**example, "metadata": {"name": CODE}, "data": modules})


@KILLS
def test_a_driver_killed_several_times_leaves_rows_and_state_of_a_plain_count(
    hourly: Compared, faults: Faults, kills: int
) -> None:
    first = present(hourly.stream.fence())
    hourly.kill_drivers(faults, kills)
    assert hourly.check().epoch == first.epoch + kills


def test_a_driver_frozen_between_output_and_commit_is_refused(
    hourly: Compared, faults: Faults, kubectl: Kubectl, hub: Hooks
) -> None:
    """SIGSTOP when rows and state of a batch are written; a successor repeats the batch; SIGCONT after its commits."""
    stream = hourly.stream
    with stream.load.flowing(), ExitStack() as kept:
        stream.commits_past(stream.fence())
        with ExitStack() as frozen:
            with held_back(hub):
                before, zombie = present(stream.fence()), stream.pipeline.driver()
                assert before.planned_log is not None
                stream.kills += 1
                kept.enter_context(faults.kept(zombie))
                frozen.enter_context(faults.frozen(zombie))
            row = hourly.successor(before)
        name = zombie["metadata"]["name"]
        found = eventually(f"{name} ends", lambda: ending(present(kubectl.get("pod", name))), seconds=90)
        expect_fenced(found, name)
        stream.commits_past(row)
    assert hourly.check().epoch == before.epoch + 1


@contextmanager
def held_back(hub: Hooks) -> Iterator[None]:
    """Hold back a commit for the block, which begins when rows and state of the batch are written."""
    asked = len(hub.got(GO))
    hub.statuses[GO] = 503
    try:
        eventually("a commit is held back", lambda: len(hub.got(GO)) > asked + 1, seconds=120, pause=0.1)
        yield
    finally:
        del hub.statuses[GO]


@pytest.mark.long
def test_new_code_resumes_with_the_state(hourly: Compared, kubectl: Kubectl) -> None:
    """No fault: the ConfigMap of the code changes under load."""
    stream = hourly.stream
    with stream.load.flowing():
        before = stream.commits_past(stream.fence())
        deploy(kubectl, "\n# another version\n")
        row = hourly.successor(before)
    assert hourly.check().epoch == row.epoch == before.epoch + 1


@pytest.mark.long
def test_a_drained_node_and_a_killed_operator_leave_rows_and_state_of_a_plain_count(
    hourly: Compared, faults: Faults, kubectl: Kubectl
) -> None:
    """`kubectl drain` of the driver's node for this pipeline; then SIGKILL of the operator.

    Where the only worker is on that node too, the batch in progress cannot end, and the successor repeats it.
    """
    stream, loss = hourly.stream, NodeLoss(kubectl, faults.nodes)
    driver = stream.pipeline.driver()
    name = driver["metadata"]["name"]
    with stream.load.flowing():
        before = stream.commits_past(stream.fence())
        ours = f"{PIPELINE_LABEL}={stream.pipeline.name}"
        with exit_codes(kubectl, name) as codes, loss.drained(driver["spec"]["nodeName"], selector=ours):
            row = hourly.successor(before)
        assert codes <= {str(int(code)) for code in (ExitCode.STOPPED, ExitCode.FENCED)}, codes
        with faults.operator_killed():
            stream.commits_past(row)
        stream.commits_past(stream.fence())
    assert hourly.check().epoch == before.epoch + 1


@pytest.mark.long
def test_a_rewind_with_deletion_of_output_leaves_rows_and_state_of_a_plain_count(
    hourly: Compared, kubectl: Kubectl
) -> None:
    """Two rewinds to a snapshot under load: the first one is deleted while the pipeline stops, the second one ends."""
    stream = hourly.stream
    target = {"snapshot": snapshot(stream, kubectl, "before")}
    hourly.reads += 2
    with stream.load.flowing():
        row = stream.commits_past(stream.commits_past(stream.fence()))
        rewind(stream, "hourly-cancelled", to=target)
        eventually(
            "it stops the pipeline", lambda: "Stop" in steps(kubectl, "hourly-cancelled"), seconds=120, pause=0.1
        )
        kubectl.delete(REWIND, "hourly-cancelled")
        row = hourly.successor(row)
        rewind(stream, "hourly-back", to=target)
        done = ended(stream, "hourly-back")
        stream.commits_past(stream.fence(), seconds=180)
    assert done["rowsToDelete"] > 0
    assert hourly.check().epoch > row.epoch


def snapshot(stream: Stream, kubectl: Kubectl, name: str) -> str:
    """Take a snapshot of this name; return its id."""
    kubectl.run("annotate", KIND, stream.pipeline.name, f"{SNAPSHOT_ANNOTATION}={name}", "--overwrite")

    def taken() -> str | None:
        recent = stream.pipeline.status().get("snapshots", {}).get("recent", [])
        return next((each["id"] for each in recent if each.get("name") == name), None)

    return eventually(f"snapshot {name} is taken", taken, seconds=60)


def steps(kubectl: Kubectl, name: str) -> set[str]:
    """Return the steps that a rewind has begun."""
    found = present(kubectl.get(REWIND, name)).get("status", {})
    return {step["name"] for step in found.get("steps", []) if step["state"] != "Pending"}


@pytest.mark.long
@pytest.mark.outage
def test_a_lost_node_leaves_rows_and_state_of_a_plain_count(hourly: Compared, faults: Faults, kubectl: Kubectl) -> None:
    """`docker pause` of the node that the driver is on until a successor has committed; then the zombie wakes."""
    stream, loss = hourly.stream, NodeLoss(kubectl, faults.nodes)
    with stream.load.flowing():
        row = stream.commits_past(stream.fence())
        if stream.pipeline.driver()["spec"]["nodeName"] != LOST:
            with loss.cordoned(DATA_NODE):
                faults.evict(stream.pipeline.driver()["metadata"]["name"])
                row = hourly.successor(row)
        assert stream.pipeline.driver()["spec"]["nodeName"] == LOST
        with two_operators(kubectl, loss, leader_on=LOST):
            stream.kills += 1
            with loss.silent(LOST):
                now = hourly.successor(row, seconds=600)
            stream.commits_past(now)
    assert hourly.check().epoch > row.epoch
