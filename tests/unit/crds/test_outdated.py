"""What an older CRD lacks of the operator's fields."""

from __future__ import annotations

import copy
from typing import Any

import pytest
import yaml

from fencepost.contract.guidance.operations import APPLY_CRDS
from fencepost_operator.api import PLURAL, REWIND_PLURAL, Reason
from fencepost_operator.api.crd_fields import KINDS, missing_fields, outdated
from unit.crds.schema import CRD, REPOSITORY, walk

CRDS: dict[str, dict[str, Any]] = {
    PLURAL: CRD,
    REWIND_PLURAL: yaml.safe_load((REPOSITORY / "crds" / "pipelinerewinds.streaming.fencepost.dev.yaml").read_text()),
}


def older(plural: str, *paths: str) -> dict[str, Any]:
    """Return the CRD without some fields."""
    crd = copy.deepcopy(CRDS[plural])
    places = dict(walk(crd["spec"]["versions"][0]["schema"]["openAPIV3Schema"]))
    for path in paths:
        parent, _, name = path.rpartition(".")
        del places[parent]["properties"][name]
    return crd


@pytest.mark.parametrize("plural", KINDS)
def test_the_crds_of_this_release_lack_nothing(plural: str) -> None:
    assert missing_fields(plural, CRDS[plural]) == ()


@pytest.mark.parametrize(
    "path",
    [
        "status.run.masterUid", "status.pages[].quietSince", "status.pages", "status.notReadySince", "spec.upgrade",
        "spec.source.kafka.startingOffsets.partitions", "spec.sinks[].cassandra.purgeIndex", "spec.snapshots.keep.age",
        "spec.job.codeFrom", "spec.job.codeFrom.configMapName",
    ],
)  # fmt: skip
def test_a_field_that_is_missing_is_named(path: str) -> None:
    assert missing_fields(PLURAL, older(PLURAL, path)) == (path,)


def test_a_field_by_which_the_operator_selects_is_looked_for() -> None:
    """Without it no pass can list a pipeline's rewinds."""
    crd = copy.deepcopy(CRDS[REWIND_PLURAL])
    del crd["spec"]["versions"][0]["selectableFields"]
    assert missing_fields(REWIND_PLURAL, crd) == ("selectableFields[.spec.pipeline]",)


def test_each_field_of_the_status_is_looked_for() -> None:
    """What the operator writes must be kept; there is no field that the look passes over."""
    for plural, crd in CRDS.items():
        status = crd["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["status"]
        for path, _ in walk(status, "status"):
            if "." in path and path.rpartition(".")[2].isalnum():
                assert missing_fields(plural, older(plural, path)) == (path,), path


@pytest.mark.parametrize(
    ("path", "limit"),
    [
        ("status.state", {"enum": ["Pending"]}), ("status.pages", {"maxItems": 1}),
        ("status.run", {"required": ["name"]}), ("status.pages[].severity", {"maxLength": 1}),
        ("status.committed.offsets{}", {"maximum": 1}),
        ("status.epoch", {"x-kubernetes-validations": [{"rule": "self < 9"}]}),
    ],
)  # fmt: skip
def test_a_limit_of_a_status_is_named(path: str, limit: dict[str, Any]) -> None:
    """A newer operator may write what it refuses. So no CRD of ours has one, as the first test shows."""
    crd = copy.deepcopy(CRD)
    dict(walk(crd["spec"]["versions"][0]["schema"]["openAPIV3Schema"]))[path].update(limit)
    assert missing_fields(PLURAL, crd) == (path,)


def test_a_rewinds_fields_are_looked_for() -> None:
    paths = ("spec.deleteOutput", "status.steps[].message", "status.target")
    assert missing_fields(REWIND_PLURAL, older(REWIND_PLURAL, *paths)) == paths


def test_what_a_newer_crd_has_besides_is_no_matter() -> None:
    crd = copy.deepcopy(CRD)
    crd["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["status"]["properties"]["later"] = {}
    assert missing_fields(PLURAL, crd) == ()


def test_a_crd_that_keeps_what_it_does_not_know_lacks_nothing() -> None:
    open_ended = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
    crd = copy.deepcopy(CRD)
    crd["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"] |= {"spec": open_ended, "status": open_ended}
    assert missing_fields(PLURAL, crd) == ()


def test_it_is_said_in_one_line_with_the_command() -> None:
    event = outdated(PLURAL, [f"status.field{number}" for number in range(1000)])
    assert event.reason == Reason.CRD_OUTDATED
    assert f"{PLURAL}.streaming.fencepost.dev is older than the operator" in event.message
    assert "status.field4 and 995 more" in event.message
    assert event.message.endswith(APPLY_CRDS)


@pytest.mark.parametrize(
    "place",
    [
        "charts/fencepost/templates/NOTES.txt", "charts/fencepost/templates/prometheusrule.yaml",
        "docs/runbooks/FencepostCrdOutdated.md",
    ],
)  # fmt: skip
def test_the_command_is_the_same_where_no_code_writes_it(place: str) -> None:
    assert APPLY_CRDS in (REPOSITORY / place).read_text()


def test_a_schema_that_keeps_all_lacks_nothing() -> None:
    crd = copy.deepcopy(CRDS[PLURAL])
    crd["spec"]["versions"][0]["schema"] = {"openAPIV3Schema": {"x-kubernetes-preserve-unknown-fields": True}}
    assert missing_fields(PLURAL, crd) == ()

    crd = copy.deepcopy(CRDS[PLURAL])
    status = crd["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["status"]["properties"]
    status["begun"] = {"type": "object", "additionalProperties": True}
    assert missing_fields(PLURAL, crd) == ()
