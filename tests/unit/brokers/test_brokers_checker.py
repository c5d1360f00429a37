"""The checker of `make brokers` finds each way in which a table, a log and a history can disagree."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime

import pytest

from brokers.checker import Seen, violations
from brokers.producer import Acknowledged
from fencepost.contract import Loss, Reason, ReportedLoss
from flights.history import HistoryRow

AT = datetime(2026, 1, 1, tzinfo=UTC)
KEY = "t/0"


def acknowledged(*numbers: int, at: float = 1.0) -> list[Acknowledged]:
    return [Acknowledged(number, 0, offset, at) for offset, number in enumerate(numbers)]


def changes(*offsets: int, epochs: Sequence[int] | None = None) -> list[HistoryRow]:
    """A claim and commits at these offsets; where the epoch is another one, its claim."""
    found: list[HistoryRow] = []
    for offset, epoch in zip(offsets, epochs or [1] * len(offsets), strict=True):
        if not found or epoch != found[-1].epoch:
            version = len(found)
            before = found[-1].offsets if found else {}
            found.append(HistoryRow(epoch=epoch, driver=None, version=version, clock=10 * version, offsets=before))
            found.append(
                HistoryRow(
                    epoch=epoch, driver=f"pod-{epoch}", version=version + 1, clock=10 * version, offsets={KEY: offset}
                )
            )
        else:
            moved = offset - found[-1].offsets[KEY]
            version = len(found)
            found.append(
                HistoryRow(
                    epoch=epoch, driver=f"pod-{epoch}", version=version, clock=10 * version,
                    offsets={KEY: offset}, records=moved,
                )
            )  # fmt: skip
    return found


SEEN = Seen(
    acknowledged=acknowledged(0, 1, 2),
    log={(0, 0): 0, (0, 1): 1, (0, 2): 2},
    rows=[((0, 0), 0), ((0, 1), 1), ((0, 2), 2)],
    changes=changes(0, 3),
    losses=(),
    keeps=True,
)
CUT = ReportedLoss(loss=Loss(reason=Reason.LOG_TRUNCATED, ranges={KEY: (1, 3)}), epoch=1, at=AT)
UNCLEAN = replace(
    SEEN,
    log={(0, 0): 0, (0, 1): 7, (0, 2): 8},
    rows=[((0, 0), 0), ((0, 1), 7), ((0, 2), 8)],
    acknowledged=[*acknowledged(0, 1, 2), Acknowledged(7, 0, 1, 2.0), Acknowledged(8, 0, 2, 2.0)],
    changes=changes(0, 3, 1, 3, epochs=[1, 1, 2, 2]),
    losses=(CUT,),
    keeps=False,
)


@pytest.mark.parametrize("seen", [SEEN, UNCLEAN])
def test_a_correct_outcome_has_no_violations(seen: Seen) -> None:
    assert violations(seen) == []


@pytest.mark.parametrize(
    ("seen", "said"),
    [
        (replace(SEEN, rows=SEEN.rows[:2]), "1 records are not in the table: (0, 2)"),
        (replace(SEEN, rows=[*SEEN.rows, ((0, 3), 3)]), "1 rows are of no record: (0, 3)"),
        (replace(SEEN, rows=[*SEEN.rows[:2], ((0, 2), 9)]), "1 rows are of another record than the log has there"),
        (replace(SEEN, rows=[*SEEN.rows, SEEN.rows[0]]), "1 places are in the table twice"),
        (replace(SEEN, acknowledged=[*SEEN.acknowledged, Acknowledged(5, 0, 3, 1.0)]), "Kafka lost 1 acknowledged"),
        (replace(SEEN, losses=(CUT,)), "1 losses are recorded"),
        (
            replace(SEEN, log={**SEEN.log, (0, 3): 2}, rows=[*SEEN.rows, ((0, 3), 2)]),
            "1 numbers are in the table twice: [2]",
        ),
        (replace(UNCLEAN, losses=()), "epoch 2, version 4: t/0 went back from 3 to 1"),
        (
            replace(UNCLEAN, losses=(replace(CUT, loss=replace(CUT.loss, ranges={KEY: (0, 3)})),)),
            "the loss of t/0 begins at 0, where Kafka holds what it acknowledged before",
        ),
    ],
)  # fmt: skip
def test_what_disagrees_is_said(seen: Seen, said: str) -> None:
    first = replace(seen, acknowledged=[replace(each, at=each.at + each.offset / 10) for each in seen.acknowledged])
    assert any(said in sentence for sentence in violations(first)), violations(first)
