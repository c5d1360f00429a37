"""Seconds from the moment at which a node falls silent to the next commit of what was on it, and where they go.

Each pause of the node takes the operator that leads, and one pipeline: with all its pods there, with its driver alone,
or with a driver that has not claimed the fence yet.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from typing import Final

from bench.delays.recovery import Recovery, driver_moments, fence_moments, known
from bench.options import Options
from bench.samples import Result, Sample
from bench.stage import committed, make_namespace, source, staged, wait_for_commit
from demo.scene import Scene
from fencepost.fence import FenceRow
from flights.console import Console
from harness.faults.node_loss import NodeLoss
from harness.kubernetes.kubectl import KubectlError
from harness.kubernetes.nodes import Container, NodeError
from harness.kubernetes.placement import COMPONENT, anchored, next_to_anchors
from harness.operator_replicas import two_operators
from harness.pipelines import PIPELINE_LABEL, merged
from harness.waiting import NotInTimeError, eventually
from testbed.cluster import DATA_NODE, WORKERS

NAME: Final = "lost-node"
PIPELINE: Final = "lost"
ROUNDS: Final = 2
RATE: Final = 60.0
"""Rows per second that keep coming, so that there is always something to commit."""
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
    """Pause the node once a round for each pipeline."""
    rounds = options.rounds or ROUNDS
    found: dict[str, list[Recovery]] = {}
    notes: list[str] = []
    for what in [*PLACES] * rounds:
        try:
            recovery = _loss(what)
        except (NotInTimeError, KubectlError, NodeError) as error:
            notes.append(f"a loss of {what} ended early: {error}")
            console.line(f"{NAME}: {notes[-1]}")
        else:
            found.setdefault(what, []).append(recovery)
            console.line(f"{NAME}: {what}: {recovery.between('lost', 'committed') or 0:.1f} s")
    everything = [recovery for each in found.values() for recovery in each]
    samples = [
        Sample("silence to commit", "s", known(everything, "lost", "committed")),
        *(Sample(f"  {name}", "s", known(everything, first, last)) for name, first, last, _ in STEPS),
        *(Sample(f"silence to commit, {what}", "s", known(each, "lost", "committed")) for what, each in found.items()),
    ]
    conditions = {"losses of each": rounds, "rows per second": RATE}
    return Result(NAME, samples, conditions, [*notes, *(f"{name}: {what}" for name, _, _, what in STEPS)])


def _loss(what: str) -> Recovery:
    """Lose the node once, with what is there of a pipeline; return the moments of its recovery."""
    with staged() as scene:
        loss, feed = NodeLoss(scene.kubectl, scene.nodes), source(scene)
        make_namespace(scene)
        scene.apply({"suspend": True})  # for its Secret and ConfigMap
        feed.burst(1_000)
        with _pipeline(scene) as own, two_operators(scene.kubectl, loss, leader_on=LOST), feed.flowing(RATE):
            before = _started(own, what)
            with loss.silent(LOST) as began:
                lost_at = time.time() - (time.monotonic() - began)
                return _recovered(own, before, lost_at)


@contextmanager
def _pipeline(scene: Scene) -> Iterator[Scene]:
    """Yield a scene for the pipeline that is placed."""
    own = _own(scene)
    try:
        yield own
    finally:
        scene.remove_pipeline()
        own.forget_fence()


def _own(scene: Scene) -> Scene:
    small = {
        "job": {"image": scene.environment.job_image, "resources": _TINY},
        "cluster": {
            "affinity": next_to_anchors(PIPELINE),
            "worker": {"resources": _TINY},
            "master": {"resources": _TINY},
        },
    }
    metadata = {"name": PIPELINE, "namespace": scene.kubectl.namespace}
    spec = merged(scene.manifest["spec"], small)
    return replace(scene, manifest={**scene.manifest, "metadata": metadata, "spec": spec})


def _started(scene: Scene, what: str) -> FenceRow:
    """Bring the pipeline to where it is lost; return its row."""
    with anchored(scene.kubectl, scene.environment.job_image, {scene.name: PLACES[what]}):
        scene.apply_pipeline(scene.manifest)
        if what == UNCLAIMED:
            eventually("its driver runs", lambda: _runs(scene), seconds=120, pause=0.2)
        else:
            wait_for_commit(scene)
    row = scene.fence()
    if row is None or (what == UNCLAIMED and row.driver is not None):
        raise NotInTimeError("the run claimed before the node was lost")
    return row


def _runs(scene: Scene) -> bool:
    """Whether its driver's container runs: the epoch of a pipeline of that name before is kept, so any run counts."""
    pods = scene.kubectl.items("pods", f"--selector={PIPELINE_LABEL}={scene.name},{COMPONENT}=driver")
    return any((container := Container.of(pod)) and container.node == LOST for pod in pods)


def _recovered(scene: Scene, before: FenceRow, lost_at: float) -> Recovery:
    """Wait for a commit of a later run; return the moments."""
    fenced = eventually("the run is fenced", lambda: _fenced(scene, before), seconds=RECOVERY_SECONDS, pause=0.2)
    row = wait_for_commit(scene, past=committed(fenced), epoch=fenced.epoch, seconds=RECOVERY_SECONDS)
    history = scene.whole_history()
    moments = {**fence_moments(history, row.epoch), **driver_moments(scene, row.epoch)}
    return Recovery({**moments, "lost": lost_at, "fenced": fence_moments(history, fenced.epoch)["fenced"]})


def _fenced(scene: Scene, before: FenceRow) -> FenceRow | None:
    row = scene.fence()
    return row if row is not None and row.epoch > before.epoch else None
