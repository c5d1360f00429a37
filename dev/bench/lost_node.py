"""Seconds from the moment at which a node falls silent to the next commit of what was on it, and where they go.

One pause of the node takes several pipelines at once, and the operator that leads: one with all its pods there, one
with its driver alone, and one whose first run has not claimed the fence yet. The successors start at the same time on
the node that is left, so that they share its CPUs.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from typing import Final

from bench.figures import Result, Sample
from bench.options import Options
from bench.recovery import Recovery, driver_moments, fence_moments, known
from bench.stage import committed, make_namespace, source, staged, wait_for_commit
from demo.scene import Scene
from fencepost.fence import FenceRow
from flights.console import Console
from harness.kubectl import KubectlError
from harness.node_loss import NodeLoss
from harness.nodes import Container, NodeError
from harness.operator_replicas import two_operators
from harness.pipelines import merged
from harness.placement import anchored, next_to_anchors
from harness.waiting import NotInTimeError, eventually
from testbed.cluster import DATA_NODE, WORKERS

NAME: Final = "lost-node"
ROUNDS: Final = 2
RATE: Final = 60.0
"""Rows a second that keep coming, so that there is always something to commit."""
LOST: Final = next(node for node in WORKERS if node != DATA_NODE)
EVERYTHING: Final = {"driver": LOST, "master": LOST, "worker": LOST}
DRIVER: Final = {"driver": LOST, "master": DATA_NODE, "worker": DATA_NODE}
UNCLAIMED: Final = "a run that has not claimed"
PLACES: Final[Mapping[str, Mapping[str, str]]] = {"all pods": EVERYTHING, "the driver": DRIVER, UNCLAIMED: DRIVER}
"""Where the pods of each pipeline are, by what of it is lost."""
RECOVERY_SECONDS: Final = 240.0
STEPS: Final = (
    ("notice", "lost", "fenced", "until the operator, or another replica of it, takes the fence over"),
    ("cluster", "fenced", "process", "master and workers of the next generation, the Job, its pod, its container"),
    ("driver", "process", "claimed", "session, executor, the claim"),
    ("commit", "claimed", "committed", "read, transform, write, commit"),
)
_TINY: Final = {"requests": {"cpu": "20m"}}


def measure(console: Console, options: Options) -> Result:
    """Pause the node once a round."""
    rounds = options.rounds or ROUNDS
    found: dict[str, list[Recovery]] = {}
    notes: list[str] = []
    for number in range(rounds):
        try:
            for lost, recovery in _round():
                found.setdefault(lost, []).append(recovery)
                console.line(f"{NAME}: {lost}: {recovery.between('lost', 'committed') or 0:.1f} s")
        except (NotInTimeError, KubectlError, NodeError) as error:
            notes.append(f"round {number + 1} ended early: {error}")
            console.line(f"{NAME}: {notes[-1]}")
    everything = [recovery for each in found.values() for recovery in each]
    samples = [
        Sample("silence to commit", "s", known(everything, "lost", "committed")),
        *(Sample(f"  {name}", "s", known(everything, first, last)) for name, first, last, _ in STEPS),
        *(Sample(f"silence to commit, {lost}", "s", known(each, "lost", "committed")) for lost, each in found.items()),
    ]
    conditions = {"rounds": rounds, "rows per second": RATE, "pipelines lost at once": len(PLACES)}
    return Result(NAME, samples, conditions, [*notes, *(f"{name}: {what}" for name, _, _, what in STEPS)])


def _round() -> Iterator[tuple[str, Recovery]]:
    """Yield what was lost and the moments of its recovery."""
    with staged() as scene:
        loss, feed = NodeLoss(scene.kubectl, scene.nodes), source(scene)
        make_namespace(scene)
        scene.apply({"suspend": True})  # for its Secret and ConfigMap
        feed.burst(1_000)
        with _pipelines(scene) as own, two_operators(scene.kubectl, loss, leader_on=LOST), feed.flowing(RATE):
            before = _started(scene, own)
            with loss.silent(LOST) as began:
                lost_at = time.time() - (time.monotonic() - began)
                recoveries = {what: _recovered(own[what], before[what], lost_at) for what in PLACES}
        yield from recoveries.items()


@contextmanager
def _pipelines(scene: Scene) -> Iterator[dict[str, Scene]]:
    """Yield a scene for each pipeline, which share topic and table: their rows are the same."""
    own = {what: _own(scene, f"lost-{number}") for number, what in enumerate(PLACES)}
    try:
        yield own
    finally:
        scene.remove_pipeline()
        for each in own.values():
            each.forget_fence()


def _own(scene: Scene, name: str) -> Scene:
    small = {
        "job": {"image": scene.environment.job_image, "resources": _TINY},
        "cluster": {
            "affinity": next_to_anchors(name),
            "worker": {"resources": _TINY},
            "master": {"resources": _TINY},
        },
    }
    metadata = {"name": name, "namespace": scene.kubectl.namespace}
    spec = merged(scene.manifest["spec"], small)
    return replace(scene, manifest={**scene.manifest, "metadata": metadata, "spec": spec})


def _started(scene: Scene, own: Mapping[str, Scene]) -> dict[str, FenceRow]:
    """Bring the pipelines to where they are lost; return their rows."""
    places = {each.name: PLACES[what] for what, each in own.items()}
    with anchored(scene.kubectl, scene.environment.job_image, places):
        for what, each in own.items():
            if what != UNCLAIMED:
                each.apply_pipeline(each.manifest)
        for what, each in own.items():
            if what != UNCLAIMED:
                wait_for_commit(each)
        last = own[UNCLAIMED]
        last.apply_pipeline(last.manifest)
        eventually("its driver runs", lambda: _runs(last), seconds=120, pause=0.2)
    rows = {what: each.fence() for what, each in own.items()}
    unclaimed = rows[UNCLAIMED]
    if unclaimed is not None and unclaimed.driver is not None:
        raise NotInTimeError("the run claimed before the node was lost")
    return {what: row for what, row in rows.items() if row is not None}


def _runs(scene: Scene) -> bool:
    pods = scene.kubectl.items("pods", f"--selector=batch.kubernetes.io/job-name={scene.name}-run-1")
    return any((container := Container.of(pod)) and container.node == LOST for pod in pods)


def _recovered(scene: Scene, before: FenceRow, lost_at: float) -> Recovery:
    """Wait for a commit of a later run; return the moments."""
    row = wait_for_commit(scene, past=committed(before), epoch=before.epoch + 1, seconds=RECOVERY_SECONDS)
    fenced = fence_moments(scene.whole_history(), before.epoch + 1).get("fenced")
    moments = {"lost": lost_at, **fence_moments(scene.whole_history(), row.epoch), **driver_moments(scene, row.epoch)}
    return Recovery(moments if fenced is None else {**moments, "fenced": fenced})
