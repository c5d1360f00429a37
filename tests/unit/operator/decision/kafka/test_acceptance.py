"""The annotation that accepts a loss: every word of it is a tenant's."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fencepost.contract import Acceptance, Loss, Reason, ReportedLoss, TopicChange, starts_of
from fencepost_operator.api import ObjectKey, Status
from fencepost_operator.decision.kafka.loss_acceptance import LONGEST, Accepted, Refused, commands, read_acceptance
from fencepost_operator.decision.kafka.loss_status import update
from present import present
from unit.operator.scenes import WELL

NOW = datetime(2026, 1, 2, tzinfo=UTC)
LOST = Loss(reason=Reason.OFFSET_OUT_OF_RANGE, ranges={"t/0": (1, 2)}, topics={"t": TopicChange("id", "id")})
RECREATED = Loss(reason=Reason.TOPIC_RECREATED, ranges={"t/0": (1, 2)}, topics={"t": TopicChange("id", "new")})
DELETED = Loss(reason=Reason.TOPIC_DELETED, ranges={"t/0": (1, 2)}, topics={"t": TopicChange("id", None)})


@pytest.mark.parametrize(
    ("loss", "words", "found"),
    [
        (LOST, "by=kim", Accepted("kim", "")),
        (LOST, "  by=kim@shop.example ", Accepted("kim@shop.example", "")),
        (RECREATED, "by=kim continue=earliest", Accepted("kim", "earliest")),
        (RECREATED, "continue=abandon by=kim", Accepted("kim", "abandon")),
        (RECREATED, "by=kim continue=t/0:0,t/12:9000000000", Accepted("kim", "t/0:0,t/12:9000000000")),
        (DELETED, "by=kim continue=abandon", Accepted("kim", "abandon")),
    ],
)
def test_an_acceptance(loss: Loss, words: str, found: Accepted) -> None:
    assert read_acceptance(f"{loss.id} {words}", loss) == found


@pytest.mark.parametrize(
    ("loss", "words", "problem"),
    [
        (LOST, "", "add by="),
        (LOST, "by=", "'by='"),
        (LOST, "by=a by=b", "'by=b'"),
        (LOST, "by=a please", "'please'"),
        (LOST, "by=a force=true", "'force=true'"),
        (LOST, "by=a continue=latest", "takes continue=earliest or none"),
        (RECREATED, "by=a", "needs continue=earliest"),
        (RECREATED, "by=a continue=latest", "'latest'"),
        (RECREATED, "by=a continue=t/0:-1", "'t/0:-1'"),
        (RECREATED, "by=a continue=t/0:1,", "''"),
        (RECREATED, "by=a continue=u/0:1", "'u/0'"),
        (RECREATED, "by=a continue=t/0:99999999999999999999", "belongs"),
        (RECREATED, "by=a continue=t/01:1", "belongs"),
        (DELETED, "by=a continue=earliest", "needs continue=abandon"),
        (DELETED, "by=a", "needs continue=abandon"),
    ],
)
def test_what_is_refused(loss: Loss, words: str, problem: str) -> None:
    found = read_acceptance(f"{loss.id} {words}", loss)
    assert isinstance(found, Refused)
    assert problem in found.problem


def test_another_loss_is_named_with_the_right_one() -> None:
    assert read_acceptance("0123456789ab by=kim", LOST) == Refused(f"is about loss '0123456789ab', not about {LOST.id}")
    assert read_acceptance(" \n", LOST) is None


def test_a_map_of_a_thousand_partitions_fits() -> None:
    choice = ",".join(f"t/{number}:{10**15 + number}" for number in range(1000))
    found = read_acceptance(f"{RECREATED.id} by=kim continue={choice}", RECREATED)
    assert found == Accepted("kim", choice)
    assert starts_of(choice)["t/999"] == 10**15 + 999


@given(st.text(), st.sampled_from([LOST, RECREATED, DELETED]), st.booleans())
def test_no_text_raises_or_makes_a_message_of_more_than_a_line(text: str, loss: Loss, is_named: bool) -> None:
    found = read_acceptance(f"{loss.id} by=kim {text}" if is_named else text, loss)
    if isinstance(found, Refused):
        assert found.problem.isprintable()
        assert len(found.problem) < 400


def test_a_long_annotation_is_not_read() -> None:
    assert isinstance(read_acceptance(f"{LOST.id} by=kim" + " " * LONGEST, LOST), Refused)


@pytest.mark.parametrize("loss", [LOST, RECREATED, DELETED])
def test_the_command_of_the_message_is_an_acceptance(loss: Loss) -> None:
    text = commands(ObjectKey("shop", "orders"), loss)
    assert text.count("kubectl annotate spl -n shop orders streaming.fencepost.dev/accept-loss=") == 1
    value = text.split('"')[1].replace("$USER", "kim")
    assert isinstance(read_acceptance(value, loss), Accepted)


def test_the_status_counts_no_more_than_the_api_server_takes() -> None:
    ranges = {f"t/{number}": (0, 2**63 - 1) for number in range(3)}
    lost = Loss(reason=Reason.OFFSET_OUT_OF_RANGE, ranges=ranges, topics={"t": TopicChange("id", "id")})
    report = ReportedLoss(loss=lost, epoch=1, at=NOW, acceptance=Acceptance(by="kim", choice="", at=NOW))
    status = update(Status(), None, WELL.seen(loss=report).observation)
    assert present(status.loss).records == 2**63 - 1
    assert status.accepted_losses[0].records == 2**63 - 1
