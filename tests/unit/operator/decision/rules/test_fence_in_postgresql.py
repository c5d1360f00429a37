"""A fence in PostgreSQL that cannot be read is said to be there, in each state of a pipeline."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from fencepost_operator.actions import RemoveFinalizer, TakeOverFence
from fencepost_operator.errors import Conflict, Denied, Rejected, Unreachable
from fencepost_operator.observation import UnknownReason
from fencepost_operator.runtime.passes.executor import reason_of_failure
from unit.operator.scenes import DENIED, DROPPED, NEW, ROW, SILENT, WELL, Scene

CHECKPOINT: dict[str, Any] = {"postgresql": {"hosts": ["db"], "credentialsFrom": {"secretName": "account"}}}
SINKS = [{"name": "orders", "plugin": {"kind": "postgresql"}}]


def elsewhere(scene: Scene) -> Scene:
    return scene.asked(checkpoint=CHECKPOINT, sinks=SINKS)


@pytest.mark.parametrize("scene", [WELL, NEW], ids=["a run streams", "nothing runs"])
@pytest.mark.parametrize(
    ("fence", "reason"),
    [
        (SILENT, "PostgresqlUnreachable"),
        (DENIED, "PostgresqlCredentialsRejected"),
        (replace(DENIED, reason=UnknownReason.REJECTED), "PostgresqlRejected"),
    ],
)
def test_what_cannot_be_read_is_named(scene: Scene, fence: Any, reason: str) -> None:
    decision = elsewhere(scene).seen(fence=fence).decide()
    assert (decision.reason, decision.action) == (reason, None)
    assert "PostgreSQL" in decision.status.message
    assert "Cassandra" not in decision.status.message


def test_a_deletion_waits_for_postgresql() -> None:
    decision = elsewhere(DROPPED).seen(fence=SILENT).decide()
    assert (decision.reason, decision.action) == ("PostgresqlUnreachable", None)
    assert "restore access to PostgreSQL" in decision.status.message.lower().replace("postgresql", "PostgreSQL")


@pytest.mark.parametrize(
    ("error", "reason"),
    [
        (Denied("x", remedy="y"), "PostgresqlCredentialsRejected"),
        (Rejected("x", remedy="y"), "PostgresqlRejected"),
        (Conflict("x"), "PostgresqlRejected"),
        (Unreachable("x", remedy="y"), "PostgresqlUnreachable"),
    ],
)
def test_an_action_that_fails_is_named(error: Any, reason: str) -> None:
    pipeline = elsewhere(WELL).pipeline
    action = TakeOverFence(epoch=ROW.epoch, version=ROW.version, owner=ROW.owner)
    assert reason_of_failure(pipeline, action, error) == reason
    assert reason_of_failure(WELL.pipeline, action, error).startswith("Cassandra")


def test_nothing_else_depends_on_the_database() -> None:
    assert not isinstance(elsewhere(WELL).decide().action, RemoveFinalizer)
