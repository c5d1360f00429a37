"""The Lua that the chart installs, run by Argo CD's own interpreter on a status of every phase."""

from __future__ import annotations

import copy
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from fencepost_operator.api import GROUP, KIND, VERSION
from gitops.customizations import PROGRAMS, customizations
from harness.gitops.argo_cd import lua
from harness.kubernetes.kubectl import Object
from testbed.environment import Environment

pytestmark = pytest.mark.long


@pytest.fixture(params=PROGRAMS)
def program(request: pytest.FixtureRequest) -> str:
    """Return a version of Argo CD."""
    return str(request.param)


def pipeline(
    *conditions: tuple[str, str, str],
    seen: int = 3,
    ago: float = 1,
    since: float | None = None,
    late: float | None = None,
    **spec: Any,
) -> Object:
    """Return a pipeline of generation 3; each condition is type, status and reason.

    The conditions are `ago` minutes old, the generation has been observed for `since` minutes, and the pipeline has not
    been ready for `late` minutes apart from planned steps: see `now`.
    """
    made = [
        {"type": kind, "status": status, "reason": reason, "message": f"{reason}!", "lastTransitionTime": ago}
        for kind, status, reason in conditions
    ]
    times = {"observedSince": since, "notReadySince": late}
    observed = {"observedGeneration": seen, **{name: found for name, found in times.items() if found is not None}}
    return {
        "apiVersion": f"{GROUP}/{VERSION}",
        "kind": KIND,
        "metadata": {"name": "departures", "namespace": "flights", "generation": 3},
        "spec": {"job": {"entrypoint": "a:b"}, **spec},
        "status": {**observed, "conditions": made},
    }


def waiting(late: float | None, since: float | None, reason: str = "TopicNotFound") -> Object:
    """Return a pipeline that reconciles for 99 minutes, `late` of them apart from planned steps."""
    return pipeline(("Ready", "False", reason), ("Reconciling", "True", reason), ago=99, late=late, since=since)


def rewound(*conditions: str) -> Object:
    """Return the status of a rewind with conditions such as Ready=True."""
    pairs = [each.split("=") for each in conditions]
    made = [{"type": kind, "status": value, "reason": "x", "message": "on its way"} for kind, value in pairs]
    return {"observedGeneration": 1, "conditions": made}


def now(given: Object) -> Object:
    """Return a pipeline with moments for ages: it may be made half an hour before its test runs."""
    found = copy.deepcopy(given)
    status = found["status"]
    for part, name in (
        (status, "observedSince"),
        (status, "notReadySince"),
        *((one, "lastTransitionTime") for one in status.get("conditions", [])),
    ):
        if name in part:
            moment = datetime.now(UTC) - timedelta(minutes=part[name])
            part[name] = moment.strftime("%Y-%m-%dT%H:%M:%SZ")
    return found


@pytest.mark.parametrize(
    ("given", "status", "message"),
    [
        ({**pipeline(), "status": {"observedGeneration": -1}}, "Progressing", "Waiting for the operator"),
        (pipeline(("Ready", "True", "Running"), seen=2), "Progressing", "Waiting for the operator"),
        (pipeline(("Ready", "False", "Provisioning"), ("Reconciling", "True", "x")), "Progressing", "Provisioning!"),
        (pipeline(("Ready", "False", "TopicNotFound"), ago=9, late=9), "Progressing", "TopicNotFound!"),
        (pipeline(("Ready", "False", "TopicNotFound"), ago=11, late=11), "Degraded", "TopicNotFound!"),
        (pipeline(("Ready", "True", "Running"), ("Streaming", "True", "Running"), ago=99), "Healthy", "Running!"),
        (pipeline(("Ready", "True", "Suspended"), ("Streaming", "False", "Suspended")), "Healthy", "Suspended!"),
        (pipeline(("Ready", "False", "BadSpec"), ("Stalled", "True", "BadSpec")), "Degraded", "BadSpec!"),
        (pipeline(("Ready", "False", "x"), ("Paused", "True", "Paused"), seen=2), "Healthy", "Paused: Paused!"),
    ],
    ids=[
        "created", "another generation", "starting", "waiting", "waiting for long", "running", "suspended", "stalled",
        "paused",
    ],
)  # fmt: skip
def test_health(environment: Environment, program: str, given: Object, status: str, message: str) -> None:
    found = lua(environment, now(given), customizations(), program=program)["health"]
    assert (found["status"], found["message"]) == (status, message)


@pytest.mark.parametrize(
    ("given", "status"),
    [
        (waiting(99, 1), "Progressing"),
        (waiting(1, 99), "Progressing"),
        (waiting(11, 11), "Degraded"),
        (waiting(99, None), "Degraded"),
        (waiting(1, None), "Progressing"),
        (waiting(None, 99, "RestartQueued"), "Progressing"),
        (waiting(None, 99, "Rewinding"), "Progressing"),
        (pipeline(("Ready", "False", "x"), ("Stalled", "True", "x"), ago=99, since=1), "Degraded"),
        (pipeline(("Ready", "False", "x"), ("Stalled", "True", "x"), ago=99, since=99, seen=2), "Progressing"),
    ],
    ids=[
        "corrected while it waited", "not Stalled any more", "corrected too long ago", "no time of the generation",
        "no time of the generation, not Stalled any more", "in the queue for a restart", "rewinding", "Stalled",
        "Stalled before the commit",
    ],
)  # fmt: skip
def test_the_time_without_ready_begins_again_with_a_commit(
    environment: Environment, program: str, given: Object, status: str
) -> None:
    assert lua(environment, now(given), customizations(), program=program)["health"]["status"] == status


@pytest.mark.parametrize(
    ("given", "offered"),
    [
        (pipeline(("Ready", "True", "Running"), ("Streaming", "True", "Running")), {"suspend"}),
        (pipeline(("Ready", "False", "BadSpec"), ("Streaming", "False", "BadSpec")), {"suspend", "restart"}),
        (pipeline(("Ready", "True", "Suspended"), suspend=True), {"resume"}),
    ],
    ids=["running", "stalled", "suspended"],
)
def test_actions_that_are_offered(environment: Environment, program: str, given: Object, offered: set[str]) -> None:
    actions = lua(environment, now(given), customizations(), program=program)["actions"]
    assert {each["name"] for each in actions} == {"restart", "suspend", "resume"}
    assert {each["name"] for each in actions if not each.get("disabled")} == offered


def test_actions_change_what_they_are_for_and_nothing_else(environment: Environment, program: str) -> None:
    given = now(pipeline(("Ready", "False", "BadSpec")))

    def after(action: str, one: Object = given) -> Object:
        changed = lua(environment, one, customizations(), action, program=program)["object"]
        assert {**changed, "spec": None} == {**one, "spec": None}
        spec: Object = changed["spec"]
        return spec

    assert after("suspend") == {**given["spec"], "suspend": True}
    assert after("resume", pipeline(suspend=True)) == {**given["spec"], "suspend": False}
    nonce = after("restart")["restart"]["nonce"]
    assert nonce.startswith("argo-cd 20")
    assert after("restart", pipeline(restart={"maxBackoff": "9s"}))["restart"].keys() == {"maxBackoff", "nonce"}


@pytest.mark.parametrize(
    ("status", "health"),
    [
        ({"observedGeneration": -1}, ("Progressing", "Waiting for the operator")),
        (rewound("Ready=False", "Reconciling=True"), ("Progressing", "on its way")),
        (rewound("Ready=True"), ("Healthy", "on its way")),
        (rewound("Ready=False", "Stalled=True"), ("Degraded", "on its way")),
    ],
    ids=["created", "on its way", "completed", "failed"],
)
def test_health_of_a_rewind(environment: Environment, program: str, status: Object, health: tuple[str, str]) -> None:
    given = {**pipeline(), "kind": "PipelineRewind", "metadata": {"name": "back", "generation": 1}, "status": status}
    found = lua(environment, given, customizations(), program=program)["health"]
    assert (found["status"], found["message"]) == health
