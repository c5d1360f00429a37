"""kstatus and Argo CD's Lua on what the operator writes in every phase: the table of docs/gitops.md."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime
from typing import Final

import pytest

from fakes.manifests import KEY
from fencepost_operator.api import GROUP, KIND, VERSION, State, read_rewind, write_status
from fencepost_operator.observation import Watermarks
from gitops.customizations import customizations
from harness.gitops.argo_cd import lua
from harness.gitops.kstatus import SEEN_AS, condition, kstatus
from harness.kubernetes.kubectl import Object
from testbed.environment import Environment
from unit.operator.decision.test_every_phase import LOST, scenes
from unit.operator.scenes import NOW, ROW, WELL, Scene

pytestmark = [pytest.mark.long, pytest.mark.timeout(600)]

RUNS: Final = ("alive", "none", "unlisted", "without a pod", "failed")
ARGO_CD: Final = {"InProgress": "Progressing", "Current": "Healthy", "Failed": "Degraded"}


def chosen() -> Iterator[Scene]:
    for name, scene in scenes():
        _, run, fence, _ = name.split(" | ")
        if fence == "held" and run in RUNS:
            yield scene


def rewinding() -> Iterator[Scene]:
    """Yield a pipeline that a rewind has to stop, and one whose run was given up."""
    metadata = {"namespace": KEY.namespace, "name": "back", "uid": "uid-9", "creationTimestamp": NOW.isoformat()}
    spec = {"pipeline": KEY.name, "to": {"offsets": {"orders/0": 10}}, "deleteOutput": False}
    topics = {"orders": "topic-1"}
    scene = WELL.seen(
        rewinds=(read_rewind({"metadata": metadata, "spec": spec}),),
        source=Watermarks(ends={"orders/0": 50}, starts={"orders/0": 0}, topic_ids=topics),
        fence=replace(ROW, topic_ids=topics),
    )
    yield from (scene, scene.said(run=LOST).seen(runs=()))


def judged() -> Iterator[Object]:
    """Yield a pipeline of each shape that decisions give a status: state, conditions, seen or not, deleted or not."""
    shapes: set[object] = set()
    now = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    for scene in itertools.chain(chosen(), rewinding()):
        metadata: Object = {"name": "orders", "generation": scene.pipeline.generation}
        if scene.pipeline.deleting_since:
            metadata["deletionTimestamp"] = now
        status = write_status(scene.decide().status)
        for each in status["conditions"]:
            each["lastTransitionTime"] = now  # Argo CD's Lua looks at the clock
        types = sorted((each["type"], each["status"]) for each in status["conditions"])
        shape = (status["state"], *types, status.get("observedGeneration"), "deletionTimestamp" in metadata)
        if shape not in shapes:
            shapes.add(shape)
            yield {"apiVersion": f"{GROUP}/{VERSION}", "kind": KIND, "metadata": metadata, "spec": {}, "status": status}


def test_every_phase_is_seen_as_the_docs_say(environment: Environment) -> None:
    given = list(judged())
    seen: dict[str, set[str]] = {}
    texts = customizations()
    for pipeline, found in zip(given, kstatus(environment, given), strict=True):
        status = pipeline["status"]
        paused = condition(pipeline, "Paused") == "True"
        if found != "Terminating":
            health = lua(environment, pipeline, texts)["health"]["status"]
            assert health == ("Healthy" if paused else ARGO_CD[found]), pipeline
        if paused:  # its status stays as it was, and it may be older than the spec
            continue
        is_ready = condition(pipeline, "Ready") == "True"
        assert (found == "Current") == is_ready, pipeline
        seen.setdefault(status["state"], set()).add(found)
    assert seen == {state: SEEN_AS[state] for state in State}


def test_a_pipeline_that_was_not_observed_is_in_progress(environment: Environment) -> None:
    made = {
        "apiVersion": f"{GROUP}/{VERSION}",
        "kind": KIND,
        "metadata": {"name": "orders", "generation": 1},
        "status": {"observedGeneration": -1},
    }
    assert kstatus(environment, [made]) == ["InProgress"]
