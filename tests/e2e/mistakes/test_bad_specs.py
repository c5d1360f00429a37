"""Five mistakes that only the operator finds: each has a reason and a remedy, and the pipeline recovers once fixed."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

import pytest

from e2e.stream import Applied, Stream
from harness.kubernetes.kubectl import Kubectl, Object
from harness.pipelines import summary
from harness.waiting import eventually

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(600)]

ROWS: Final = 300
WRONG_SECRET: Final = "wrong-credentials"  # noqa: S105 - an object's name


@dataclass(frozen=True, slots=True, kw_only=True)
class Mistake:
    """What a user wrote that the API server accepts and that cannot work; what must be said of it."""

    name: str
    wrong: Mapping[str, Any]
    reason: str
    names: str
    """What the message must hold, so that the user finds the place."""


MISTAKES: Final = (
    Mistake(
        name="bad credentials",
        wrong={"checkpoint": {"cassandra": {"credentialsFrom": {"secretName": WRONG_SECRET}}}},
        reason="CassandraCredentialsRejected",
        names="credentialsFrom",
    ),
    Mistake(
        name="absent topic",
        wrong={"source": {"kafka": {"topics": ["no-such-topic"]}}},
        reason="TopicNotFound",
        names="no-such-topic",
    ),
    Mistake(
        name="absent image",
        wrong={"job": {"image": "fencepost-job:no-such-tag", "imagePullPolicy": "Never"}},
        reason="ImagePullFailed",
        names="no-such-tag",
    ),
    Mistake(
        name="too large",
        wrong={"cluster": {"worker": {"resources": {"requests": {"cpu": "500"}}}}},
        reason="Unschedulable",
        names="cpu",
    ),
    Mistake(
        name="bad entrypoint",
        wrong={"job": {"entrypoint": "no_such_module:transform"}},
        reason="BadSpec",
        names="no_such_module",
    ),
)
"""By how far a start gets: each manifest fixes the mistake before it, and makes the next one."""


def test_five_mistakes_are_each_named_with_a_remedy_and_work_once_fixed(applied: Applied, kubectl: Kubectl) -> None:
    """No fault but the user's: five manifests, wrong in five ways, and then the right one."""
    account = {"username": "unknown", "password": "wrong"}
    kubectl.apply({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": WRONG_SECRET}, "stringData": account})
    stream = applied("mistaken", **MISTAKES[0].wrong)
    try:
        for mistake in MISTAKES:
            stream.spec = dict(mistake.wrong)
            stream.apply()
            _wait_until_said(mistake, stream)
        stream.load.burst(ROWS)
        stream.spec = {}
        stream.apply()
        stream.pipeline.wait_ready()
        stream.check_every_row()
    finally:
        stream.pipeline.delete()  # the tests that come after share the nodes


def _wait_until_said(mistake: Mistake, stream: Stream) -> None:
    """Wait until Ready is False for the mistake's reason, in words that name the place and what to do."""

    def said() -> bool:
        found: Object = stream.pipeline.object()
        ready = stream.pipeline.condition("Ready")
        assert (ready.get("status"), ready.get("reason")) == ("False", mistake.reason), summary(found)
        remedy = found["status"].get("failure", {}).get("remedy", "")
        assert mistake.names in ready["message"] + remedy, summary(found)
        # What happened, and after it what helps: two sentences at least, or a remedy of its own.
        assert remedy or any(mark in ready["message"] for mark in (". ", "; ", ": ")), summary(found)
        return True

    eventually(f"{mistake.name} is said", said, seconds=120)
