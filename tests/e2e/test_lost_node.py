"""The worker that holds neither Kafka nor Cassandra is lost under load, with pipelines and the operator on it.

In `make test` it holds the driver of one pipeline, in the middle of a batch. In `make soak` the node is away for ten
minutes, and what is on it differs from pipeline to pipeline, so that one loss shows all of it: also everything,
everything with `restart.onUnprovenDeath: wait`, only the master, and all workers. The node is a container that is
paused: nothing in it ends, nothing in it reports, and when it returns its drivers and executors continue where they
stood.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from contextlib import ExitStack
from dataclasses import dataclass, field
from typing import Final

import pytest

from e2e.stream import Applied, Stream, cassandra
from fencepost.contract import ExitCode
from fencepost.fence import FenceRow
from fencepost_operator.api import CONFIRM_DEAD_ANNOTATION
from flights.sink import Table, rows
from harness.faults.cluster_faults import Faults
from harness.faults.container_exits import ContainerExits, container_exits
from harness.faults.node_loss import NodeLoss
from harness.kubernetes.kubectl import Kubectl, Object
from harness.kubernetes.nodes import Container
from harness.kubernetes.placement import COMPONENT, anchored, next_to_anchors
from harness.monitoring.page_receivers import Hooks, hooks
from harness.operator_replicas import two_operators
from harness.pipelines import KIND, PIPELINE_LABEL, code, example_file, helm_revisions
from harness.waiting import eventually, throughout
from present import present
from testbed.cluster import DATA_NODE, WORKERS
from testbed.environment import Environment

pytestmark = [pytest.mark.e2e, pytest.mark.outage, pytest.mark.timeout(1500)]

LOST: Final = next(node for node in WORKERS if node != DATA_NODE)
LONG_SECONDS: Final = 600.0
CODE: Final = "held-back"
MODULE: Final = """
import time
import urllib.error
import urllib.request

import departures_arrow
import fencepost

def is_held(batch, context):
    records = sum(until - start for start, until in context.offsets.values())
    return context.epoch == 1 and records > 2_000 and 2 in batch.column("partition").to_pylist()

@fencepost.record_batches
def transform(batch, context):
    while is_held(batch, context):
        try:
            urllib.request.urlopen(context.args[0], timeout=10).read()
            break
        except urllib.error.HTTPError:
            time.sleep(0.2)
    return departures_arrow.transform(batch, context)
"""
"""Of a batch that has two tasks, the first run writes the second part, with partition 2, when the test lets it."""
HELD_RECORDS: Final = 8_000
"""Of them some batch has more than the 2,000 from which it has two tasks."""
GO: Final = "/go"
ENDINGS: Final = {
    int(ExitCode.FENCED): "woke and was refused",
    int(ExitCode.STOPPED): "was asked to stop before it had anything to commit",
    137: "was killed by the kubelet",
    143: "was ended by the kubelet",
}


@dataclass(slots=True)
class Moments:
    """When what happened, in seconds since the loss: figures for a reader, never an assertion."""

    began: float
    seen: dict[str, float] = field(default_factory=dict)

    def note(self, what: str) -> None:
        self.seen.setdefault(what, time.monotonic() - self.began)

    def __str__(self) -> str:
        return "\n".join(f"{seconds:6.1f} s  {what}" for what, seconds in sorted(self.seen.items(), key=lambda m: m[1]))


@pytest.fixture(scope="module")
def loss(kubectl: Kubectl, faults: Faults) -> NodeLoss:
    """Return what takes nodes away."""
    return NodeLoss(kubectl, faults.nodes)


EVERYTHING: Final = "lost-everything"
DRIVER: Final = "lost-driver"
CAREFUL: Final = "lost-careful"
MASTER: Final = "lost-master"
WORKERS_ALONE: Final = "lost-workers"
PLACES: Final = {
    EVERYTHING: {"driver": LOST, "master": LOST, "worker": LOST},
    DRIVER: {"driver": LOST, "master": DATA_NODE, "worker": DATA_NODE},
    CAREFUL: {"driver": LOST, "master": LOST, "worker": LOST},
    MASTER: {"driver": DATA_NODE, "master": LOST, "worker": DATA_NODE},
    WORKERS_ALONE: {"driver": DATA_NODE, "master": DATA_NODE, "worker": LOST},
}
"""The node of each component of each pipeline."""

Fleet = dict[str, Stream]
"""The pipelines that stream, by name."""


@pytest.fixture
def hub(loss: NodeLoss) -> Iterator[Hooks]:
    """Return what the executors of `lost-driver` ask whether they may continue; not yet."""
    with hooks(loss.nodes.host(DATA_NODE)) as found:
        found.statuses[GO] = 503
        yield found


@pytest.fixture
def fleet(
    request: pytest.FixtureRequest,
    applied: Applied,
    kubectl: Kubectl,
    environment: Environment,
    hub: Hooks,
    loss: NodeLoss,
) -> Iterator[Fleet]:
    """Return the pipelines that the parameter names, once they stream."""
    names: tuple[str, ...] = request.param

    def apply(name: str) -> Stream:
        return applied(
            name,
            cluster={"affinity": next_to_anchors(name), "worker": {"cores": 2} if name == DRIVER else {}},
            # A zombie must outlive the order to end.
            job={"terminationGracePeriodSeconds": 120, **(held if name == DRIVER else {})},
            restart={"maxBackoff": "2s", "onUnprovenDeath": "wait" if name == CAREFUL else "fence"},
        )

    modules = {"departures_arrow.py": example_file("departures", "departures_arrow.py"), "held_back.py": MODULE}
    kubectl.apply({**code(), "metadata": {"name": CODE}, "data": modules})
    held = {
        "entrypoint": "held_back:transform",
        "codeFrom": {"configMapName": CODE},
        "args": [f"http://{loss.nodes.host(DATA_NODE)}:{hub.port}{GO}"],
    }

    with anchored(kubectl, environment.job_image, {name: PLACES[name] for name in names}):
        made = {name: apply(name) for name in names}
        for stream in made.values():
            stream.pipeline.wait_ready()
    yield made
    for stream in made.values():
        stream.pipeline.kubectl.run("delete", KIND, stream.pipeline.name, "--wait=false")


@pytest.mark.parametrize(
    ("fleet", "lasts"),
    [
        pytest.param((DRIVER,), 0.0, id="until-replaced"),
        pytest.param(tuple(PLACES), LONG_SECONDS, marks=pytest.mark.long, id="long"),
    ],
    indirect=["fleet"],
)
def test_what_stood_on_a_lost_node_continues_elsewhere_and_its_zombies_change_nothing(
    fleet: Fleet, kubectl: Kubectl, loss: NodeLoss, hub: Hooks, lasts: float
) -> None:
    """`docker pause` of the node, which comes back with its zombies; in the long one a driver's pod is deleted."""
    assert {name: _nodes(stream) for name, stream in fleet.items()} == {name: PLACES[name] for name in fleet}
    zombies = {name: _container(stream) for name, stream in fleet.items() if PLACES[name]["driver"] == LOST}
    with two_operators(kubectl, loss, leader_on=LOST), container_exits(loss.nodes, LOST) as exits, ExitStack() as loads:
        for name, stream in fleet.items():
            if name != DRIVER:
                loads.enter_context(stream.load.flowing())
                stream.commits_past(stream.fence())
        half = _half_written(fleet[DRIVER], hub)
        loads.enter_context(fleet[DRIVER].load.flowing())
        with loss.silent(LOST) as began:
            moments = Moments(began)
            _finish_writing_without_a_driver(fleet[DRIVER], half, hub)
            before = {name: _row(stream) for name, stream in fleet.items()}
            if EVERYTHING in fleet:
                _delete_by_force(kubectl, fleet[EVERYTHING])
            _watch_until_replaced(fleet, before, moments, loss)
            if MASTER in fleet:
                later = fleet[MASTER].commits_past(before[MASTER])
                assert later.epoch == before[MASTER].epoch, "a run that has executors needs no master"
            if CAREFUL in fleet:
                _waits_for_proof(fleet[CAREFUL], before[CAREFUL])
                left = lasts - (time.monotonic() - began)
                throughout(left, lambda: _still_waits(fleet[CAREFUL], before[CAREFUL]), pause=10)
                _confirm_dead(kubectl, fleet[CAREFUL])
                _committed_after(fleet[CAREFUL], before[CAREFUL])
        _expect_endings(zombies, exits)
        print(moments)
    for name, stream in fleet.items():
        stream.kills += 1
        row = stream.check_every_row()
        stream.pipeline.wait_ready(epoch=row.epoch)
        _check_that_nothing_old_is_left(stream, before[name])


def _pods(stream: Stream) -> list[Object]:
    return stream.pipeline.kubectl.items("pods", f"--selector={PIPELINE_LABEL}={stream.pipeline.name}")


def _nodes(stream: Stream) -> dict[str, str]:
    """Return the node of each component's running pod."""
    return {
        pod["metadata"]["labels"][COMPONENT]: pod["spec"].get("nodeName", "")
        for pod in _pods(stream)
        if pod["status"].get("phase") == "Running" and "deletionTimestamp" not in pod["metadata"]
    }


def _row(stream: Stream) -> FenceRow:
    return present(stream.fence())


def _container(stream: Stream) -> Container:
    container = present(Container.of(stream.pipeline.driver()))
    assert container.node == LOST
    return container


def _half_written(stream: Stream, hub: Hooks) -> FenceRow:
    """Wait until a batch is planned whose first part is in the table and whose second part is held back."""
    stream.load.burst(HELD_RECORDS)

    def half() -> FenceRow | None:
        row = _row(stream)
        return row if hub.got(GO) and _written_at(stream, row, 0) and not _written_at(stream, row, 2) else None

    return eventually("half of a batch is written", half, seconds=60, pause=0.2)


def _written_at(stream: Stream, row: FenceRow, partition: int) -> set[int]:
    """Return the write timestamps of the rows of the batch that follows `row`, in a partition."""
    key = f"{stream.load.ledger.topic}/{partition}"
    columns = ("partition", "offset", "WRITETIME(id)")
    with cassandra(stream.place) as opened:
        found = list(rows(opened, Table(stream.place.tables, stream.table), columns))
    return {at for part, offset, at in found if part == partition and row.offsets[key] <= offset < row.planned[key]}


def _finish_writing_without_a_driver(stream: Stream, half: FenceRow, hub: Hooks) -> None:
    """Let the executors, which are on a healthy node, write the rest of the batch of the driver that is lost.

    They end on their own when three heartbeats are not answered: what follows is written by a successor alone.
    """
    hub.statuses[GO] = 200
    eventually("the rest of it is written", lambda: _written_at(stream, half, 2), seconds=60, pause=0.2)
    assert _written_at(stream, half, 2) == {half.write_timestamp}
    row = _row(stream)
    assert (row.epoch, row.offsets, row.planned) == (half.epoch, half.offsets, half.planned), "no driver commits it"


def _expect_endings(zombies: Mapping[str, Container], exits: ContainerExits) -> None:
    """Wait until the drivers that came back with the node have ended, and print how."""
    for name, container in zombies.items():

        def ended(container: Container = container) -> bool:
            return exits.code(container) is not None

        eventually(f"the zombie of {name} ends", ended, seconds=150)
        ending = exits.code(container)
        assert ending in ENDINGS, f"the zombie of {name} ended with code {ending}"
        print(f"the zombie of {name} {ENDINGS[ending]} (exit code {ending})")


def _delete_by_force(kubectl: Kubectl, stream: Stream) -> None:
    """Delete the driver's pod as people do whose node does not answer: its object goes, its process does not."""
    driver = stream.pipeline.driver()["metadata"]["name"]
    kubectl.run("delete", "pod", driver, "--force", "--grace-period=0")


def _watch_until_replaced(
    fleet: Fleet, before: dict[str, FenceRow], moments: Moments, loss: NodeLoss, *, seconds: float = 600
) -> None:
    """Wait until the runs that cannot continue have successors that committed; note when what happened."""
    left = {name: stream for name, stream in fleet.items() if name in {EVERYTHING, DRIVER, WORKERS_ALONE}}
    fenced_at: dict[str, FenceRow] = {}

    def done() -> bool:
        if loss.is_unreachable(LOST):
            moments.note("Kubernetes calls the node unreachable")
        for name, stream in list(left.items()):
            now = _row(stream)
            if now.epoch == before[name].epoch:
                continue
            moments.note(f"{name}: fenced")
            then = fenced_at.setdefault(name, now)
            if now.driver is not None:
                moments.note(f"{name}: the next run holds the fence")
            if now.offsets != then.offsets:
                moments.note(f"{name}: the next run has committed")
                del left[name]
        return not left

    eventually(f"the runs on {LOST} are replaced", done, seconds=seconds, pause=0.3)


def _waits_for_proof(stream: Stream, before: FenceRow) -> None:
    """Wait for the condition that sends a page, and look that nothing was started or fenced."""
    ready = stream.pipeline.wait_condition("Ready", "False", reason="DeathUnproven")
    assert f"{CONFIRM_DEAD_ANNOTATION}={stream.pipeline.run_name(before.epoch)}" in ready["message"]
    assert LOST in ready["message"]
    _still_waits(stream, before)


def _still_waits(stream: Stream, before: FenceRow) -> None:
    assert stream.pipeline.status()["run"]["epoch"] == before.epoch, "a run was started"
    assert stream.pipeline.condition("Ready")["reason"] == "DeathUnproven"


def _confirm_dead(kubectl: Kubectl, stream: Stream) -> None:
    run = stream.pipeline.status()["run"]["name"]
    kubectl.run("annotate", KIND, stream.pipeline.name, f"{CONFIRM_DEAD_ANNOTATION}={run}", "--overwrite")


def _committed_after(stream: Stream, before: FenceRow) -> None:
    row = before
    while row.epoch == before.epoch:
        row = stream.commits_past(row, seconds=180)
    stream.commits_past(row)


def _check_that_nothing_old_is_left(stream: Stream, before: FenceRow) -> None:
    """Wait until there are objects of the newest generation alone, and none of the run that was lost."""
    status = stream.pipeline.status()
    name, generation = stream.pipeline.name, status["cluster"]["generation"]
    kept = (f"{name}-g{generation}-", f"{name}-run-")
    lost = stream.pipeline.run_name(before.epoch) if status["run"]["epoch"] != before.epoch else "no run"

    def is_old(one: str) -> bool:
        kind, _, object_name = one.partition("/")
        return kind != "ControllerRevision" and (not object_name.startswith(kept) or object_name.startswith(lost))

    def gone() -> bool:
        old = [one for one in stream.pipeline.owned() if is_old(one)]
        assert not old, f"left over beside generation {generation}: {old}"
        return True

    eventually(f"nothing old is left of {name}", gone, seconds=90)
    deployed = [one for one in helm_revisions(stream.pipeline.kubectl, name) if _is_deployed(one)]
    assert len(deployed) == 1, "one release of the cluster"


def _is_deployed(revision: Object) -> bool:
    return bool(revision["metadata"]["labels"]["status"] == "deployed")
