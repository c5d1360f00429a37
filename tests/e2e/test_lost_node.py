"""The worker that holds neither Kafka nor Cassandra is lost under load, with four pipelines and the operator on it.

What is on the node differs from pipeline to pipeline, so that one loss shows all of it: everything, only the master,
all workers, and everything with `restart.onUnprovenDeath: wait`. The node is a container that is paused: nothing in it
ends, nothing in it is heard of, and when it comes back its drivers and executors go on where they stood.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from typing import Final

import pytest

from e2e.stream import Applied, Stream
from fencepost.fence import FenceRow
from fencepost_operator.api import CONFIRM_DEAD_ANNOTATION
from harness.faults import Faults
from harness.kubectl import Kubectl, Object
from harness.node_loss import NodeLoss
from harness.pipelines import KIND, PIPELINE_LABEL, helm_revisions
from harness.placement import COMPONENT, anchored, next_to_anchors
from harness.waiting import eventually, throughout
from testbed.cluster import DATA_NODE, WORKERS
from testbed.environment import Environment
from testbed.release import NAMESPACE as OPERATOR_NAMESPACE
from testbed.release import RELEASE

pytestmark = [pytest.mark.e2e, pytest.mark.outage, pytest.mark.timeout(1500)]

LOST: Final = next(node for node in WORKERS if node != DATA_NODE)
LONG_SECONDS: Final = 600.0


@dataclass(slots=True)
class Moments:
    """When what happened, in seconds since the loss: figures for a reader, never an assertion."""

    began: float
    seen: dict[str, float] = field(default_factory=dict)

    def note(self, what: str) -> None:
        self.seen.setdefault(what, time.monotonic() - self.began)

    def __str__(self) -> str:
        return "\n".join(f"{seconds:6.1f} s  {what}" for what, seconds in sorted(self.seen.items(), key=lambda m: m[1]))


@dataclass(frozen=True, slots=True)
class Fleet:
    """The pipelines, by what of them is on the node that is lost."""

    everything: Stream
    master: Stream
    workers: Stream
    careful: Stream

    def all(self) -> tuple[Stream, ...]:
        return (self.everything, self.master, self.workers, self.careful)


@pytest.fixture(scope="module")
def loss(kubectl: Kubectl, faults: Faults) -> NodeLoss:
    """Return what takes nodes away."""
    return NodeLoss(kubectl, faults.nodes)


PLACES: Final = {
    "lost-everything": {"driver": LOST, "master": LOST, "worker": LOST},
    "lost-master": {"driver": DATA_NODE, "master": LOST, "worker": DATA_NODE},
    "lost-workers": {"driver": DATA_NODE, "master": DATA_NODE, "worker": LOST},
    "lost-careful": {"driver": LOST, "master": LOST, "worker": LOST},
}


@pytest.fixture
def fleet(applied: Applied, kubectl: Kubectl, environment: Environment) -> Iterator[Fleet]:
    """Return four pipelines that stream."""

    def apply(name: str, **restart: str) -> Stream:
        return applied(
            name,
            cluster={"affinity": next_to_anchors(name)},
            job={"terminationGracePeriodSeconds": 120},  # a zombie must outlive the order to end
            restart={"maxBackoff": "2s", **restart},
        )

    with anchored(kubectl, environment.job_image, PLACES):
        made = Fleet(
            everything=apply("lost-everything"),
            master=apply("lost-master"),
            workers=apply("lost-workers"),
            careful=apply("lost-careful", onUnprovenDeath="wait"),
        )
        for stream in made.all():
            stream.pipeline.wait_ready()
    yield made
    for stream in made.all():
        stream.pipeline.kubectl.run("delete", KIND, stream.pipeline.name, "--wait=false")


@pytest.mark.parametrize(
    "lasts", [pytest.param(0.0, id="until-replaced"), pytest.param(LONG_SECONDS, marks=pytest.mark.long, id="long")]
)
def test_what_stood_on_a_lost_node_goes_on_elsewhere_and_its_zombies_change_nothing(
    fleet: Fleet, kubectl: Kubectl, loss: NodeLoss, lasts: float
) -> None:
    """`docker pause` of the node; one driver's pod there is deleted by force; the node comes back with its zombies."""
    assert {stream.pipeline.name: _nodes(stream) for stream in fleet.all()} == PLACES
    with two_operators(kubectl, loss, leader_on=LOST), ExitStack() as loads:
        for stream in fleet.all():
            loads.enter_context(stream.load.flowing())
            stream.commits_past(stream.fence())
        with loss.silent(LOST) as began:
            moments = Moments(began)
            before = {stream.pipeline.name: _row(stream) for stream in fleet.all()}
            _delete_by_force(kubectl, fleet.everything)
            _watch_until_replaced(fleet, before, moments, loss)
            master = before[fleet.master.pipeline.name]
            assert fleet.master.commits_past(master).epoch == master.epoch, "a run that has executors needs no master"
            careful = before[fleet.careful.pipeline.name]
            _waits_for_proof(fleet.careful, careful)
            if lasts:
                left = lasts - (time.monotonic() - began)
                throughout(left, lambda: _still_waits(fleet.careful, careful), pause=10)
                _confirm_dead(kubectl, fleet.careful)
                _committed_after(fleet.careful, careful)
        back = time.monotonic()
        _committed_after(fleet.careful, careful)
        print(f"{moments}\n{time.monotonic() - back:6.1f} s  after the node was Ready, the one with `wait` committed")
    for stream in fleet.all():
        stream.kills += 1
        row = stream.check_every_row()
        stream.pipeline.wait_ready(epoch=row.epoch)
        _check_that_nothing_old_is_left(stream, before[stream.pipeline.name])


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
    row = stream.fence()
    assert row is not None
    return row


def _delete_by_force(kubectl: Kubectl, stream: Stream) -> None:
    """Delete the driver's pod as people do whose node does not answer: its object goes, its process does not."""
    driver = stream.pipeline.driver()["metadata"]["name"]
    kubectl.run("delete", "pod", driver, "--force", "--grace-period=0")


def _watch_until_replaced(
    fleet: Fleet, before: dict[str, FenceRow], moments: Moments, loss: NodeLoss, *, seconds: float = 240
) -> None:
    """Wait until the runs that cannot go on have successors that committed; note when what happened."""
    left = {stream.pipeline.name: stream for stream in (fleet.everything, fleet.workers)}
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
    """Wait for the condition by which a person is paged, and look that nothing was started or fenced."""
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
    kept = (f"{name}-g{generation}-", f"recovery-{name}-g{generation}-", f"{name}-run-")
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


@contextmanager
def two_operators(kubectl: Kubectl, loss: NodeLoss, *, leader_on: str) -> Iterator[None]:
    """Run two replicas of the operator, of which the one on a node leads; afterwards there is one again."""
    operator = kubectl.within(OPERATOR_NAMESPACE)
    selector = f"--selector=app.kubernetes.io/instance={RELEASE}"

    def leader() -> Object | None:
        lease = operator.get("lease", RELEASE)
        holder = (lease or {}).get("spec", {}).get("holderIdentity", "").partition("_")[0]
        return operator.get("pod", holder) if holder else None

    def leads_there() -> bool:
        pod = leader()
        return pod is not None and pod["spec"].get("nodeName") == leader_on

    def scale(replicas: int) -> None:
        operator.run("scale", f"deployment/{RELEASE}", f"--replicas={replicas}")
        operator.run("rollout", "status", f"deployment/{RELEASE}", "--timeout=120s", seconds=130)

    try:
        if not leads_there():
            with loss.cordoned(next(node for node in WORKERS if node != leader_on)):
                operator.run("delete", "pods", selector, "--timeout=60s", seconds=70)
                eventually(f"the operator on {leader_on} leads", leads_there, seconds=60)
        scale(2)
        assert leads_there()
        nodes = {pod["spec"]["nodeName"] for pod in operator.items("pods", selector)}
        assert nodes == set(WORKERS), "replicas prefer different nodes"
        yield
    finally:
        scale(1)
