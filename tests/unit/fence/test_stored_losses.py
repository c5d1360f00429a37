"""Rows of losses from another writer: what a driver cannot have written is ignored."""

from __future__ import annotations

from datetime import UTC, datetime
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fencepost.contract import Acceptance, Loss, Reason, ReportedLoss, TopicChange
from fencepost.fence.stored_losses import report_values, reported_loss
from present import present

AT = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)
LOSS = Loss(reason=Reason.TOPIC_DELETED, ranges={"t/0": (1, 9)}, topics={"t": TopicChange("id", None)}, committed_ms=7)
REPORT = ReportedLoss(loss=LOSS, epoch=3, at=AT)


def row(report: ReportedLoss = REPORT, **changes: Any) -> SimpleNamespace:
    nothing = {"accepted_by": None, "accepted_at": None, "choice": None}
    return SimpleNamespace(**{**nothing, **report_values("p", report), **changes})


def test_a_row_is_the_loss_that_it_was_made_of() -> None:
    assert reported_loss(row()) == REPORT
    accepted = present(reported_loss(row(accepted_by="kim", accepted_at=AT.replace(tzinfo=None), choice="abandon")))
    assert accepted.acceptance == Acceptance(by="kim", choice="abandon", at=AT)


@pytest.mark.parametrize(
    "loss",
    [
        Loss(reason=Reason.STREAMING, ranges=LOSS.ranges, topics=LOSS.topics),
        Loss(reason=Reason.TOPIC_DELETED, ranges={"t": (1, 2)}, topics=LOSS.topics),
        Loss(reason=Reason.TOPIC_DELETED, ranges={"t/-1": (1, 2)}, topics=LOSS.topics),
        Loss(reason=Reason.TOPIC_DELETED, ranges={"u/0": (1, 2)}, topics=LOSS.topics),
        Loss(reason=Reason.TOPIC_DELETED, ranges={}, topics={"a\nb": TopicChange("id", None)}),
        Loss(reason=Reason.TOPIC_DELETED, ranges={}, topics={"x" * 300: TopicChange("id", None)}),
        Loss(reason=Reason.TOPIC_DELETED, ranges={"t/0": ("1", "2")}, topics=LOSS.topics),  # type: ignore[dict-item]
        Loss(reason=Reason.TOPIC_DELETED, ranges={}, topics={"t": TopicChange(7, None)}),  # type: ignore[arg-type]
        Loss(reason=Reason.TOPIC_DELETED, ranges={"t/0": (1, 2**63)}, topics=LOSS.topics),
    ],
    ids=[
        "reason",
        "key",
        "partition",
        "topic of a range",
        "topic of two lines",
        "long topic",
        "texts",
        "number",
        "big",
    ],
)
def test_an_id_that_fits_does_not_make_a_loss_of_what_is_none(loss: Loss) -> None:
    assert reported_loss(row(ReportedLoss(loss=loss, epoch=3, at=AT))) is None


VALUES = st.none() | st.integers() | st.text() | st.dictionaries(st.text(), st.integers() | st.none())


@given(st.dictionaries(st.sampled_from(sorted(vars(row()))), VALUES))
def test_no_row_raises(changes: dict[str, Any]) -> None:
    found = reported_loss(row(**changes))
    assert found is None or found.loss == LOSS
    assert found is None or found.acceptance is None or isinstance(found.acceptance.choice, str)
