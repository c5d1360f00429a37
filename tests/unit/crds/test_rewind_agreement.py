"""A PipelineRewind as its CRD and the operator read it."""

from __future__ import annotations

from typing import Any

import jsonschema
import pytest
import yaml

from fencepost_operator.api import (
    GROUP,
    REWIND_KIND,
    REWIND_PLURAL,
    VERSION,
    RewindStatus,
    RewindStep,
    StepState,
    read_rewind,
    write_rewind_status,
)
from fencepost_operator.api.rewind import MOST_OFFSETS
from unit.crds.schema import CRDS, REPOSITORY, Schema, strict

CRD = CRDS[REWIND_PLURAL]
PROPERTIES: Schema = CRD["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]
EXAMPLE: dict[str, Any] = yaml.safe_load((REPOSITORY / "examples" / "rewind.yaml").read_text())
METADATA = {"namespace": "shop", "name": "back", "uid": "uid-1", "creationTimestamp": "2026-01-01T00:00:00Z"}


def test_the_names_are_the_operators() -> None:
    names = CRD["spec"]["names"]
    assert (CRD["spec"]["group"], names["plural"], names["kind"]) == (GROUP, REWIND_PLURAL, REWIND_KIND)
    assert CRD["spec"]["versions"][0]["name"] == VERSION


def test_every_step_and_state_is_explained() -> None:
    step = PROPERTIES["status"]["properties"]["steps"]["items"]["properties"]
    assert all(each.value in step["name"]["description"] for each in RewindStep)
    assert all(each.value in step["state"]["description"] for each in StepState)


def test_the_example_is_a_rewind() -> None:
    jsonschema.validate(EXAMPLE["spec"], strict(PROPERTIES["spec"]))


def test_a_written_status_passes_the_schema() -> None:
    jsonschema.validate(write_rewind_status(RewindStatus()), strict(PROPERTIES["status"]))


@pytest.mark.parametrize(
    "spec",
    [
        None,
        "text",
        [],
        {},
        {"pipeline": 5, "to": {"snapshot": "s"}},
        {"pipeline": "p", "to": {"snapshot": "s", "offsets": {"t/0": 1}}},
        {"pipeline": "p", "to": {"offsets": {}}},
        {"pipeline": "p", "to": {"offsets": {"t/0": -1}}},
        {"pipeline": "p", "to": {"offsets": {"t/0": True}}},
        {"pipeline": "p", "to": {"offsets": {f"t/{number}": 1 for number in range(MOST_OFFSETS + 1)}}},
        {"pipeline": "p", "to": {"offsets": {"t\u2028/0": 1}}},
        {"pipeline": "p", "to": {"timestamp": "yesterday"}},
        {"pipeline": "p", "to": {"timestamp": "2026-01-01T00:00:00"}},
    ],
)
def test_a_wrong_spec_is_read_as_what_is_wrong_with_it(spec: Any) -> None:
    found = read_rewind({"metadata": METADATA, "spec": spec}).spec
    assert isinstance(found, tuple)
    assert found
    assert all(len(str(violation)) < 1000 and str(violation).isprintable() for violation in found)
