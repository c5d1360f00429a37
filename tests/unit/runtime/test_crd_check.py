"""A CRD that is older than the operator is told once, in the log and as a metric, and looked at again."""

from __future__ import annotations

import logging
from dataclasses import dataclass, field

import pytest
from prometheus_client import CollectorRegistry

from fencepost.contract.guidance.operations import APPLY_CRDS
from fencepost_operator.api import PLURAL, REWIND_PLURAL, Reason
from fencepost_operator.errors import Denied, PortError
from fencepost_operator.runtime.crd_check import CrdCheck


@dataclass
class Answers:
    """What the API server says of each CRD."""

    found: dict[str, tuple[str, ...] | PortError | None] = field(default_factory=dict)

    async def missing(self, plural: str) -> tuple[str, ...] | None:
        answer = self.found.get(plural, ())
        if isinstance(answer, PortError):
            raise answer
        return answer


def figure(check: CrdCheck, plural: str) -> float | None:
    return check.registry.get_sample_value("fencepost_crd_missing_fields", {"resource": plural})


@pytest.fixture
def said(caplog: pytest.LogCaptureFixture) -> pytest.LogCaptureFixture:
    caplog.set_level(logging.INFO)
    return caplog


async def test_crds_of_this_release_are_not_worth_a_word(said: pytest.LogCaptureFixture) -> None:
    check = CrdCheck(Answers(), CollectorRegistry())
    await check.look()
    assert (figure(check, PLURAL), figure(check, REWIND_PLURAL)) == (0, 0)
    assert not said.records


async def test_an_older_one_is_told_once_and_so_is_its_end(said: pytest.LogCaptureFixture) -> None:
    crds = Answers({PLURAL: ("status.run.masterUid", "status.pages")})
    check = CrdCheck(crds, CollectorRegistry())
    await check.look()
    await check.look()
    assert (figure(check, PLURAL), figure(check, REWIND_PLURAL)) == (2, 0)
    (record,) = said.records
    assert (record.levelname, record.__dict__["reason"]) == ("ERROR", Reason.CRD_OUTDATED)
    assert "status.run.masterUid" in record.getMessage()
    assert APPLY_CRDS in record.getMessage()
    crds.found.clear()
    await check.look()
    await check.look()
    assert figure(check, PLURAL) == 0
    assert [each.levelname for each in said.records] == ["ERROR", "INFO"]


async def test_a_crd_that_is_replaced_by_an_older_one_is_told(said: pytest.LogCaptureFixture) -> None:
    crds = Answers()
    check = CrdCheck(crds, CollectorRegistry())
    await check.look()
    crds.found[REWIND_PLURAL] = ("status.target",)
    await check.look()
    assert [each.levelname for each in said.records] == ["ERROR"]


async def test_without_the_right_to_look_it_says_so_once_and_goes_on(said: pytest.LogCaptureFixture) -> None:
    crds = Answers({PLURAL: Denied("no", remedy="grant get on customresourcedefinitions")})
    check = CrdCheck(crds, CollectorRegistry())
    await check.look()
    await check.look()
    (record,) = said.records
    assert record.levelname == "WARNING"
    assert "grant get" in record.__dict__["remedy"]
    assert figure(check, PLURAL) is None
    assert figure(check, REWIND_PLURAL) == 0


@pytest.mark.parametrize("answer", [None, Denied("no", remedy="")], ids=["deleted", "refused"])
async def test_what_is_not_known_any_more_has_no_figure(answer: PortError | None) -> None:
    crds = Answers({PLURAL: ("status.pages",)})
    check = CrdCheck(crds, CollectorRegistry())
    await check.look()
    crds.found[PLURAL] = answer
    await check.look()
    assert figure(check, PLURAL) is None


async def test_it_is_told_again_each_hour(said: pytest.LogCaptureFixture) -> None:
    check = CrdCheck(Answers({PLURAL: ("status.pages",)}), CollectorRegistry())
    for _ in range(120):
        await check.look()
    assert len(said.records) == 3
