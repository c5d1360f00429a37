"""Five mistakes that only the operator finds: each has a reason and a remedy, and the pipeline recovers once fixed."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

import pytest

from e2e.stream import Applied, Stream
from harness.kubectl import Kubectl, Object
from harness.pipelines import KIND, summary
from harness.waiting import eventually

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(900)]

ROWS: Final = 300
WRONG_SECRET: Final = "wrong-credentials"  # noqa: S105 - an object's name


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Mistake:
    """What a user wrote that the API server accepts and that cannot work; what must be said of it."""

    name: str
    wrong: Mapping[str, Any]
    reason: str
    names: str
    """What the message must hold, so that the user finds the place."""


MISTAKES: Final = (
    # First, so that it is fixed first: it is the one whose runs fail and start again.
    Mistake(
        name="bad-entrypoint",
        wrong={"job": {"entrypoint": "no_such_module:transform"}},
        reason="BadSpec",
        names="no_such_module",
    ),
    Mistake(
        name="absent-topic",
        wrong={"source": {"kafka": {"topics": ["no-such-topic"]}}},
        reason="TopicNotFound",
        names="no-such-topic",
    ),
    Mistake(
        name="bad-credentials",
        wrong={"checkpoint": {"cassandra": {"credentialsFrom": {"secretName": WRONG_SECRET}}}},
        reason="CassandraCredentialsRejected",
        names="credentialsFrom",
    ),
    Mistake(
        name="absent-image",
        wrong={"job": {"image": "fencepost-job:no-such-tag", "imagePullPolicy": "Never"}},
        reason="ImagePullFailed",
        names="no-such-tag",
    ),
    Mistake(
        name="too-large",
        wrong={"cluster": {"worker": {"resources": {"requests": {"cpu": "500"}}}}},
        reason="Unschedulable",
        names="cpu",
    ),
)


@pytest.fixture
def mistaken(applied: Applied, kubectl: Kubectl) -> Iterator[dict[Mistake, Stream]]:
    """Apply a pipeline per mistake, together; none is left for the tests that come after."""
    account = {"username": "nobody", "password": "wrong"}
    kubectl.apply({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": WRONG_SECRET}, "stringData": account})
    yield {mistake: applied(mistake.name, **mistake.wrong) for mistake in MISTAKES}
    kubectl.delete(KIND, *(mistake.name for mistake in MISTAKES))


def test_five_mistakes_are_each_named_with_a_remedy_and_work_once_mended(mistaken: dict[Mistake, Stream]) -> None:
    """No fault but the user's: five pipelines, wrong in five ways; then the right manifests, one after the other."""
    for mistake, stream in mistaken.items():
        _wait_until_said(mistake, stream)
    for stream in mistaken.values():
        stream.load.burst(ROWS)
        stream.spec = {}
        stream.apply()
        stream.pipeline.wait_ready()
        stream.check_every_row()
        stream.pipeline.delete()


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

    eventually(f"{mistake.name} is said", said, seconds=240)
