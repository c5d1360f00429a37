"""The size of a state in the status, and the warning before it outgrows the room that workers have for it."""

from __future__ import annotations

from dataclasses import replace
from typing import Final

import pytest

from fencepost_operator.api import JobMode, Spec, StateSpec, StoredStateStatus, condition_of
from fencepost_operator.api.codec import encode
from fencepost_operator.decision.decision import Decision
from unit.operator.scenes import ROW, SILENT, WELL, Scene

GIB: Final = 1024**3


def stateful(max_bytes: int = 20 * GIB) -> Scene:
    spec = WELL.pipeline.spec
    assert isinstance(spec, Spec)
    job = replace(spec.job, mode=JobMode.STATEFUL)
    return WELL.with_pipeline(spec=replace(spec, job=job, state=StateSpec(max_bytes=max_bytes)))


def seen(size: int | None, scene: Scene | None = None) -> Decision:
    return (scene or stateful()).seen(fence=replace(ROW, state_bytes=size)).decide()


def warning(decision: Decision) -> str:
    found = condition_of(decision.status.conditions, "StateNearLimit")
    return "" if found is None else found.message


def test_the_status_has_the_size_of_the_last_commit() -> None:
    decision = seen(5 * GIB)
    assert decision.status.stored_state == StoredStateStatus(bytes=5 * GIB, max_bytes=20 * GIB)
    assert warning(decision) == ""
    assert seen(0).status.stored_state == StoredStateStatus(bytes=0, max_bytes=20 * GIB)


def test_what_cannot_be_seen_changes_nothing() -> None:
    known = StoredStateStatus(bytes=7, max_bytes=20 * GIB)
    status = replace(WELL.pipeline.status, stored_state=known)
    assert stateful().with_pipeline(status=status).seen(fence=SILENT).decide().status.stored_state == known
    assert seen(None, stateful().with_pipeline(status=status)).status.stored_state is None, "it was rewound"


def test_a_stateless_pipeline_has_none() -> None:
    assert WELL.decide().status.stored_state is None


def test_a_state_near_its_limit_is_named_with_both_figures() -> None:
    assert warning(seen(16 * GIB - 1)) == ""
    decision = seen(16 * GIB)
    assert "The state has 16384Mi, 80 % of the 20Gi that every worker has room for" in warning(decision)
    assert "spec.state.maxBytes" in warning(decision)
    assert "StateNearLimit" in [event.reason for event in decision.events]
    assert warning(seen(16 * GIB, stateful(max_bytes=40 * GIB))) == "", "it was raised"


@pytest.mark.parametrize("size", [0, 2**63 - 1])
def test_any_number_of_the_fence_row_can_be_reported(size: int) -> None:
    encode(seen(size).status)
