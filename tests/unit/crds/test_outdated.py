"""The fields of the operator that an older CRD lacks."""

from __future__ import annotations

import copy
from typing import Any

import pytest

from fencepost_operator.api import PLURAL, REWIND_PLURAL, VERSION
from fencepost_operator.api.crd_fields import KINDS, missing_fields
from unit.crds.schema import CRDS, walk


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


def test_an_older_crd_without_the_version_of_the_operator_is_named() -> None:
    """Its API server answers each request of the operator with 404."""
    crd = copy.deepcopy(CRDS[PLURAL])
    del crd["spec"]["versions"][0]
    assert missing_fields(PLURAL, crd) == (f"versions[{VERSION}]",)


def test_each_field_of_the_status_is_looked_for() -> None:
    """What the operator writes must be kept; there is no field that the look passes over."""
    for plural, crd in CRDS.items():
        status = crd["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["status"]
        for path, _ in walk(status, "status"):
            if "." in path and path.rpartition(".")[2].isalnum():
                assert missing_fields(plural, older(plural, path)) == (path,), path


def test_a_rewinds_fields_are_looked_for() -> None:
    paths = ("spec.deleteOutput", "status.steps[].message", "status.target")
    assert missing_fields(REWIND_PLURAL, older(REWIND_PLURAL, *paths)) == paths


def test_additional_fields_of_a_newer_crd_are_accepted() -> None:
    crd = copy.deepcopy(CRDS[PLURAL])
    crd["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["status"]["properties"]["later"] = {}
    assert missing_fields(PLURAL, crd) == ()


def test_a_crd_that_keeps_what_it_does_not_know_lacks_nothing() -> None:
    open_ended = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
    crd = copy.deepcopy(CRDS[PLURAL])
    crd["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"] |= {"spec": open_ended, "status": open_ended}
    assert missing_fields(PLURAL, crd) == ()


def test_a_schema_that_keeps_all_lacks_nothing() -> None:
    crd = copy.deepcopy(CRDS[PLURAL])
    crd["spec"]["versions"][0]["schema"] = {"openAPIV3Schema": {"x-kubernetes-preserve-unknown-fields": True}}
    assert missing_fields(PLURAL, crd) == ()

    crd = copy.deepcopy(CRDS[PLURAL])
    status = crd["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["status"]["properties"]
    status["begun"] = {"type": "object", "additionalProperties": True}
    assert missing_fields(PLURAL, crd) == ()
