"""When a new spec that fails is replaced by the last stable one: one thing is changed, and it does or does not."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from typing import Any, Final

import pytest

from fakes.manifests import body
from fencepost_operator.api import Reason, Revision, Spec, StableStatus, Violation
from fencepost_operator.desired.identity.hashes import fingerprints
from fencepost_operator.desired.identity.revision import revision_of
from fencepost_operator.observation import Began, NotAsked, PodIssue, References, UnknownReason
from present import present
from unit.operator.scenes import BURIED, DENIED, FAILED, GOOD, JOB, LONG_AGO, NOW, ROW, SILENT, Scene

assert isinstance(GOOD.spec, Spec)
OLD: Final = revision_of(GOOD, GOOD.spec, {})
STABLE: Final = StableStatus(revision=OLD.name, epoch=1, since=LONG_AGO)
NEW: Final[dict[str, Any]] = {"job": {"image": "b", "entrypoint": "a:b"}, "upgrade": {"rollback": "enabled"}}
UNPULLED: Final = PodIssue(pod="orders-run-2-x", reason="ImagePullBackOff", message="manifest unknown")


def new(scene: Scene, **upgrade: Any) -> Scene:
    """Return the scene with another image, whose first run was recorded an hour ago, and a stable spec before it."""
    asked = scene.asked(**{**NEW, "upgrade": {"rollback": "enabled", "maxAttempts": 2, "deadline": "2h", **upgrade}})
    assert isinstance(asked.pipeline.spec, Spec)
    run = present(asked.pipeline.status.run)
    run_hash = fingerprints(asked.pipeline.spec, {}).run
    failure = replace(FAILED, count=2, attempts=2, spec_hash=run_hash, next_attempt_at=NOW)
    run = replace(run, spec_hash=run_hash, first_recorded_at=LONG_AGO)
    return asked.said(run=run, failure=failure, stable=STABLE).seen(stable=Began(revision=OLD))


FAILS: Final = new(BURIED)
FAILURE: Final = FAILS.pipeline.status.failure
RAN: Final = FAILS.pipeline.status.run
assert FAILURE is not None
assert RAN is not None
UNCLAIMED: Final = replace(
    RAN, ended_at=None, dead=None, claimed_at=None, started_at=None, pod_uid=None, pod_name=None, node_name=None,
    node_uid=None,
)  # fmt: skip
"""A run of the new spec that has not started."""


def unpulled(seconds: int) -> Scene:
    """Return the new spec's run, whose image has not been found for so long."""
    run = replace(UNCLAIMED, recorded_at=NOW - timedelta(seconds=seconds))
    job = replace(JOB, spec_hash=run.spec_hash, pod=None, issue=UNPULLED)
    return FAILS.said(run=run, failure=None).seen(runs=(job,), fence=replace(ROW, driver=None))


CASES: Final[dict[str, tuple[Scene, bool]]] = {
    "fails as often as it may": (FAILS, True),
    "failed once": (FAILS.said(failure=replace(FAILURE, count=1, attempts=1)), False),
    "failed once, and another run would only repeat it": (
        FAILS.said(failure=replace(FAILURE, count=1, attempts=1, reason=Reason.BAD_SPEC)), True,
    ),
    "the environment fails": (FAILS.said(failure=replace(FAILURE, reason=Reason.DEPENDENCY_DOWN)), False),
    "records are lost": (FAILS.said(failure=replace(FAILURE, reason=Reason.DATA_LOSS)), False),
    "a loss stopped it": (FAILS.said(failure=replace(FAILURE, loss="0123456789ab")), False),
    "an older run failed": (FAILS.said(failure=replace(FAILURE, epoch=1)), False),
    "an older spec failed": (FAILS.said(failure=replace(FAILURE, spec_hash="old")), False),
    "it failed after its deadline": (new(BURIED, deadline="59m"), False),
    "it failed just before its deadline": (new(BURIED, deadline="60m"), True),
    "not since when it runs": (FAILS.said(run=replace(RAN, first_recorded_at=None)), False),
    "rollback is disabled": (new(BURIED, rollback="disabled"), False),
    "nothing was stable": (FAILS.said(stable=None), False),
    "the object is refused": (FAILS.with_pipeline(refused=(Violation("f", "is wrong", "correct it"),)), False),
    "the stable spec is gone": (FAILS.seen(stable=Began(revision=None)), False),
    "the stable spec is the new one": (
        FAILS.seen(stable=Began(revision=Revision.of("orders", body(**NEW)["spec"], {}))), False,
    ),
    "what the stable spec names is gone": (
        FAILS.seen(stable=Began(revision=OLD, references=References(hashes={"Secret/s": None}))), False,
    ),
    "the stable spec is rejected": (FAILS.seen(stable=replace(DENIED, reason=UnknownReason.REJECTED)), False),
    "its image is not found for 5 minutes": (unpulled(300), True),
    "its image is not found for a minute": (unpulled(60), False),
    "no room for 5 minutes": (
        unpulled(300).seen(runs=(replace(JOB, pod=None, issue=replace(UNPULLED, reason="Unschedulable")),)), False,
    ),
    "its run has claimed": (unpulled(300).said(run=replace(UNCLAIMED, claimed_at=NOW, recorded_at=LONG_AGO)), False),
}  # fmt: skip


@pytest.mark.parametrize("case", CASES)
def test_whether_it_rolls_back(case: str) -> None:
    scene, rolls_back = CASES[case]
    decision = scene.decide()
    assert (decision.reason == Reason.ROLLED_BACK) is rolls_back, decision.status.message
    assert (decision.status.rolled_back is not None) is rolls_back


def test_what_is_recorded_of_a_rollback() -> None:
    found = present(FAILS.decide().status.rolled_back)
    assert (found.revision, found.reason, found.at) == (OLD.name, Reason.RUN_FAILED, NOW)
    assert found.message.endswith("2 runs in a row failed (RunFailed: it failed)")


@pytest.mark.parametrize(("stable", "reason"), [(SILENT, "KubernetesUnreachable"), (DENIED, "KubernetesForbidden")])
def test_a_stable_spec_that_cannot_be_read_is_waited_for(stable: Any, reason: str) -> None:
    assert FAILS.seen(stable=stable).decide().reason == reason


def test_the_stable_spec_is_looked_for_at_once() -> None:
    decision = FAILS.seen(stable=NotAsked()).decide()
    assert (decision.reason, decision.action, decision.requeue_after) == (Reason.PROVISIONING, None, 0.0)
