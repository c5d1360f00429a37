"""A PipelineTrial as its CRD and the operator read it."""

from __future__ import annotations

from typing import Any

import jsonschema
import pytest
import yaml

from fencepost_operator.api import (
    GROUP,
    TRIAL_KIND,
    TRIAL_PLURAL,
    VERSION,
    ProcessUse,
    PromotionState,
    RowCounts,
    TrialPhase,
    TrialResources,
    TrialSample,
    TrialSink,
    TrialSpec,
    TrialStatus,
    read_trial,
    write_trial_status,
)
from unit.crds.schema import CRDS, REPOSITORY, Schema, strict

CRD = CRDS[TRIAL_PLURAL]
PROPERTIES: Schema = CRD["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]
EXAMPLE: dict[str, Any] = yaml.safe_load((REPOSITORY / "examples" / "trial.yaml").read_text())
METADATA = {"namespace": "shop", "name": "next", "uid": "uid-1", "creationTimestamp": "2026-01-01T00:00:00Z"}
JOB = {"image": "orders:2"}
SINCE = {"duration": "1h"}


def test_the_names_are_the_operators() -> None:
    names = CRD["spec"]["names"]
    assert (CRD["spec"]["group"], names["plural"], names["kind"]) == (GROUP, TRIAL_PLURAL, TRIAL_KIND)
    assert CRD["spec"]["versions"][0]["name"] == VERSION


def test_every_phase_and_state_is_explained() -> None:
    status = PROPERTIES["status"]["properties"]
    assert all(each.value in status["phase"]["description"] for each in TrialPhase)
    state = status["promotion"]["properties"]["state"]
    assert all(each.value in state["description"] for each in PromotionState)


def test_the_example_is_a_trial() -> None:
    jsonschema.validate(EXAMPLE["spec"], strict(PROPERTIES["spec"]))
    assert isinstance(read_trial({"metadata": METADATA, "spec": EXAMPLE["spec"]}).spec, TrialSpec)


@pytest.mark.parametrize(
    "status",
    [
        TrialStatus(),
        TrialStatus(
            phase=TrialPhase.COMPLETED,
            start={"orders/0": 5},
            rows=RowCounts(compared=3, equal=2, changed=1, missing=0),
            sinks=(TrialSink(name="orders", rows=RowCounts(compared=3)),),
            samples=(TrialSample(sink="orders", kind="Changed", key="id=5", columns="price"),),
            resources=TrialResources(processes=(ProcessUse(name="jvm", peak_memory=5),), fits=True),
        ),
    ],
)
def test_a_written_status_passes_the_schema_and_is_read_as_it_was(status: TrialStatus) -> None:
    body = write_trial_status(status)
    jsonschema.validate(body, strict(PROPERTIES["status"]))
    assert read_trial({"metadata": METADATA, "status": body}).status == status


@pytest.mark.parametrize(
    "spec",
    [
        None,
        "text",
        [],
        {},
        {"pipeline": 5, "job": JOB, "since": SINCE},
        {"pipeline": "p", "since": SINCE},
        {"pipeline": "p", "job": {}, "since": SINCE},
        {"pipeline": "p", "job": {"memory": "1Gi"}, "since": SINCE},
        {"pipeline": "p", "job": {"image": "orders 2"}, "since": SINCE},
        {"pipeline": "p", "job": {"image": "orders:2\u2028"}, "since": SINCE},
        {"pipeline": "p", "job": {"entrypoint": "os.system('x')"}, "since": SINCE},
        {"pipeline": "p", "job": {"codeFrom": {"configMapName": "../other"}}, "since": SINCE},
        {"pipeline": "../other/p", "job": JOB, "since": SINCE},
        {"pipeline": "p", "job": JOB, "since": {}},
        {"pipeline": "p", "job": JOB, "since": {"duration": "1h", "snapshot": "s"}},
        {"pipeline": "p", "job": JOB, "since": {"duration": "9000h"}},
        {"pipeline": "p", "job": JOB, "since": {"timestamp": "2026-01-01T00:00:00"}},
        {"pipeline": "p", "job": JOB, "since": SINCE, "compare": {"ignoreColumns": ['a"; DROP TABLE b']}},
        {"pipeline": "p", "job": JOB, "since": SINCE, "compare": {"maxRowsPerSecond": 0}},
        {"pipeline": "p", "job": JOB, "since": SINCE, "limits": {"memory": "1Ki"}},
        {"pipeline": "p", "job": JOB, "since": SINCE, "limits": {"cpu": "9" * 30}},
        {"pipeline": "p", "job": JOB, "since": SINCE, "promoteWhen": {"changedRows": -1}},
        {"pipeline": "p", "job": JOB, "since": SINCE, "ttlAfterFinished": "0s"},
    ],
)
def test_a_wrong_spec_is_read_as_what_is_wrong_with_it(spec: Any) -> None:
    found = read_trial({"metadata": METADATA, "spec": spec}).spec
    assert isinstance(found, tuple)
    assert found
    assert all(len(str(violation)) < 1000 and str(violation).isprintable() for violation in found)
