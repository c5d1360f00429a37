"""After a run that found records lost: when its pipeline waits for an acceptance, records one, or continues."""

from __future__ import annotations

from dataclasses import replace
from typing import Final

import pytest

from fencepost.contract import Acceptance, Loss, Reason, ReportedLoss, TopicChange, commit_ms
from fencepost_operator.actions import AcceptLoss, TakeOverFence
from fencepost_operator.api import ACCEPT_LOSS_ANNOTATION
from unit.operator.scenes import BURIED, FAILED, NOW, ROW, SILENT, WELL, Scene

LOST: Final = Loss(
    reason=Reason.OFFSET_OUT_OF_RANGE,
    ranges={"orders/0": (50, 60)},
    topics={"orders": TopicChange("id", "id")},
    committed_ms=commit_ms(ROW.committed_at),
)
REPORT: Final = ReportedLoss(loss=LOST, epoch=2, at=NOW)
STOPPED: Final = replace(FAILED, count=1, reason=Reason.OFFSET_OUT_OF_RANGE, loss=LOST.id, next_attempt_at=NOW)
WAITS: Final = BURIED.said(failure=STOPPED).seen(loss=REPORT)
GIVEN: Final = {ACCEPT_LOSS_ANNOTATION: f"{LOST.id} by=kim"}


def accepted(by: str = "kim", choice: str = "") -> ReportedLoss:
    return replace(REPORT, acceptance=Acceptance(by=by, choice=choice, at=NOW))


CASES: Final[dict[str, tuple[Scene, str, type | None]]] = {
    "it is not accepted": (WAITS, "OffsetOutOfRange", None),
    "it is accepted": (WAITS.with_pipeline(annotations=GIVEN), "LossAccepted", AcceptLoss),
    "the acceptance is about another one": (
        WAITS.with_pipeline(annotations={ACCEPT_LOSS_ANNOTATION: "0123456789ab by=kim"}), "OffsetOutOfRange", None,
    ),
    "its acceptance is recorded": (WAITS.seen(loss=accepted()), "Fenced", TakeOverFence),
    "its acceptance is recorded, and still annotated": (
        WAITS.with_pipeline(annotations=GIVEN).seen(loss=accepted()), "Fenced", TakeOverFence,
    ),
    "another user's acceptance is recorded": (
        WAITS.with_pipeline(annotations=GIVEN).seen(loss=accepted("lee")), "LossAccepted", AcceptLoss,
    ),
    "another choice is recorded": (
        WAITS.with_pipeline(annotations=GIVEN).seen(loss=accepted(choice="earliest")), "LossAccepted", AcceptLoss,
    ),
    "it cannot be read": (WAITS.seen(loss=SILENT), "OffsetOutOfRange", None),
    "it cannot be read, and the run failed otherwise": (
        BURIED.said(failure=replace(FAILED, count=1, next_attempt_at=NOW)).seen(loss=SILENT), "Fenced", TakeOverFence,
    ),
    "the spec has changed": (WAITS.said(failure=replace(STOPPED, spec_hash="old")), "Fenced", TakeOverFence),
    "the newest run failed otherwise": (
        WAITS.said(failure=replace(FAILED, count=1, next_attempt_at=NOW)), "Fenced", TakeOverFence,
    ),
    "a run is active": (WELL.said(failure=STOPPED).seen(loss=REPORT), "Streaming", None),
}  # fmt: skip


@pytest.mark.parametrize("case", CASES)
def test_what_is_done_about_a_loss(case: str) -> None:
    scene, reason, action = CASES[case]
    decision = scene.decide()
    found = (str(decision.reason), type(decision.action) if decision.action is not None else None)
    assert found == (reason, action), decision.status.message


def test_what_is_recorded_of_an_acceptance() -> None:
    action = CASES["it is accepted"][0].decide().action
    assert action == AcceptLoss(committed_ms=LOST.committed_ms, loss=LOST.id, by="kim", choice="")


def test_the_message_names_the_loss_and_what_is_wrong_with_the_acceptance() -> None:
    assert "orders/0 [50, 60)" in WAITS.decide().status.message
    wrong = CASES["the acceptance is about another one"][0].decide().status.message
    assert f"is about loss '0123456789ab', not about {LOST.id}" in wrong
    assert "not about" not in WAITS.decide().status.message
