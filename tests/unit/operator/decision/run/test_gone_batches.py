"""What an accepted loss leaves of a batch that other code began."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from typing import Final

import pytest

from fencepost.contract import Acceptance, Loss, Reason, ReportedLoss, TopicChange, commit_ms
from fencepost.fence import FenceRow
from fencepost_operator.api import FinishingStatus, RunStatus
from fencepost_operator.decision.status import update_status
from unit.operator.scenes import LONG_AGO, NOW, POLICY, ROW, RUN, WELL

BEFORE: Final = replace(
    ROW, driver=None, topic_ids={"orders": "old"}, offsets={"orders/0": 100}, planned={"orders/0": 200}
)
BEGUN: Final = {"orders/0": 200}
NEVER_CLAIMED: Final = replace(RUN, claimed_at=None, ended_at=NOW, dead=True)


def accepted(reason: Reason, *, new_id: str = "new") -> ReportedLoss:
    loss = Loss(
        reason=reason,
        ranges={"orders/0": (160, 180)},
        topics={"orders": TopicChange("old", new_id)},
        committed_ms=commit_ms(ROW.committed_at),
    )
    return ReportedLoss(loss=loss, epoch=1, at=LONG_AGO, acceptance=Acceptance(by="kim", choice="earliest", at=NOW))


def finishing(report: ReportedLoss, row: FenceRow, run: RunStatus = NEVER_CLAIMED) -> dict[str, int]:
    """Return what is left of the batch in the status."""
    batch = FinishingStatus(code="orders-1", revision="orders-1", since=LONG_AGO, until=BEGUN)
    scene = WELL.said(run=run, finishing=batch).seen(runs=(), fence=row, loss=report)
    left = update_status(scene.pipeline, scene.observation, POLICY).finishing
    return dict(left.until) if left is not None else {}


@pytest.mark.parametrize(
    ("report", "left"),
    [
        pytest.param(accepted(Reason.TOPIC_RECREATED), {}, id="a recreated topic"),
        # The old code may have written these records, and they are still there.
        pytest.param(accepted(Reason.LOG_TRUNCATED, new_id="old"), {"orders/0": 160}, id="a truncated log"),
        pytest.param(accepted(Reason.OFFSET_OUT_OF_RANGE, new_id="old"), BEGUN, id="expired records"),
        pytest.param(replace(accepted(Reason.TOPIC_RECREATED), acceptance=None), BEGUN, id="it is not accepted"),
    ],
)
def test_what_is_left_of_the_batch(report: ReportedLoss, left: dict[str, int]) -> None:
    assert finishing(report, BEFORE) == left


def test_an_acceptance_that_is_used_up_hides_no_batch_of_the_new_topic() -> None:
    """A run has claimed after it and begun a batch; nothing is committed yet."""
    claimed = replace(BEFORE, topic_ids={"orders": "new"}, offsets={"orders/0": 0}, epoch=RUN.epoch)
    run = replace(NEVER_CLAIMED, claimed_at=NOW - timedelta(minutes=1))
    assert finishing(accepted(Reason.TOPIC_RECREATED), claimed, run) == BEGUN
    assert finishing(accepted(Reason.TOPIC_RECREATED), claimed) == BEGUN
    truncated = replace(BEFORE, epoch=RUN.epoch)
    assert finishing(accepted(Reason.LOG_TRUNCATED, new_id="old"), truncated, run) == BEGUN
