"""The CRDs follow from the types, and the operator reads what the schema accepts."""

import re
from typing import Any

import jsonschema
import pytest
import yaml

from fencepost_operator.api import GROUP, KIND, PLURAL, VERSION, Spec, State, Status, parse, write_status
from fencepost_operator.api.codec import encode
from fencepost_operator.api.crd_fields import KINDS
from generators.crds import crd
from unit.crds.schema import CRD, REPOSITORY, ROOT, at, defaulted, minimal, strict, walk
from unit.crds.schema import VERSION as CRD_VERSION


def test_the_names_are_the_operators() -> None:
    assert (CRD["spec"]["group"], CRD["spec"]["names"]["plural"], CRD["spec"]["names"]["kind"]) == (GROUP, PLURAL, KIND)
    assert CRD_VERSION["name"] == VERSION


@pytest.mark.parametrize("plural", KINDS)
def test_the_files_are_what_the_types_say(plural: str) -> None:
    assert (REPOSITORY / "crds" / f"{plural}.{GROUP}.yaml").read_text() == crd(plural), "run `make reference`"


def test_a_spec_that_says_everything_is_read_whole() -> None:
    """A field that was not read would be missing here; two quantities of bytes are written in their largest unit."""
    text = (REPOSITORY / "tests/e2e/mistakes/manifests/everything.yaml").read_text()
    for written, read in {"cpu: 1,": 'cpu: "1",', "memory: 2147483648": "memory: 2Gi", "1m30s": "90s"}.items():
        assert written in text
        text = text.replace(written, read)
    written = yaml.safe_load(text)
    spec = parse(written)
    assert isinstance(spec, Spec), spec
    assert _without_empty(encode(spec)) == _without_empty(written["spec"])


def _without_empty(value: Any) -> Any:
    """Return JSON without what a sink or a job does not set."""
    if isinstance(value, dict):
        return {key: _without_empty(part) for key, part in value.items() if part not in ({}, [])}
    return [_without_empty(part) for part in value] if isinstance(value, list) else value


def test_a_fence_in_postgresql_is_read_whole() -> None:
    written = yaml.safe_load((REPOSITORY / "tests/e2e/mistakes/manifests/everything-in-postgresql.yaml").read_text())
    spec = parse(written)
    assert isinstance(spec, Spec), spec
    found = encode(spec)
    assert found["checkpoint"] == written["spec"]["checkpoint"]
    assert _without_empty(found["sinks"]) == written["spec"]["sinks"]


def test_a_written_status_passes_the_schema() -> None:
    jsonschema.validate(write_status(Status()), strict(at("status")))


def test_every_state_is_explained() -> None:
    assert all(state.value in at("status.state")["description"] for state in State)


def test_the_schemas_defaults_are_the_operators() -> None:
    bare = minimal()
    assert isinstance(parse(bare), Spec)
    assert parse(defaulted(bare)) == parse(bare)


ANNOTATIONS = {
    "sidecar.istio.io/inject": True,
    "note": True,
    "notkubernetes.io/a": True,
    "cluster-autoscaler.kubernetes.io/safe-to-evict": True,
    "kubectl.kubernetes.io/default-container": False,
    "container.apparmor.security.beta.kubernetes.io/driver": False,
    "Container.AppArmor.Security.Beta.Kubernetes.io/driver": False,
    "kubernetes.io/psp": False,
    "node.k8s.io/a": False,
    "streaming.fencepost.dev/spec-hash": False,
    "io.kubernetes.cri-o.Devices": False,
    "two/slashes/a": False,
    "-a": False,
}


@pytest.mark.parametrize(("key", "allowed"), ANNOTATIONS.items(), ids=str)
def test_an_annotation_that_kubernetes_acts_on_is_refused(key: str, allowed: bool) -> None:
    body = minimal()
    body["spec"]["cluster"] = {"podAnnotations": {key: "x"}}
    found = parse(body)
    refused = () if isinstance(found, Spec) else found
    assert bool(refused) is not allowed
    assert all("podAnnotations" in violation.field and violation.remedy for violation in refused)


PIPELINES = [
    pytest.param(body, id=f"{path.relative_to(REPOSITORY)}")
    for path in sorted((REPOSITORY / "examples").rglob("*.yaml"))
    for body in yaml.safe_load_all(path.read_text())
    if isinstance(body, dict) and body.get("kind") == KIND
]


@pytest.mark.parametrize("body", PIPELINES)
def test_an_example_is_a_pipeline(body: dict[str, Any]) -> None:
    jsonschema.validate(body, strict())
    assert isinstance(parse(body), Spec)
    assert re.fullmatch(at("metadata.name")["pattern"], body["metadata"]["name"])


WRONG = sorted((REPOSITORY / "tests" / "e2e" / "mistakes" / "manifests" / "wrong").glob("*.yaml"))


@pytest.mark.parametrize("path", WRONG, ids=lambda path: path.stem)
def test_a_wrong_manifest_names_a_field_that_exists_or_none_could_know(path: Any) -> None:
    field = re.match(r"# refused: (\S+)\n", path.read_text())
    assert field, "the first line says which field is refused"
    known = {place.replace("[]", "") for place, _ in walk(ROOT)}
    assert re.sub(r"\[\d+\]", "", field[1]) in known or path.stem == "unknown-field"


def test_there_are_ten_wrong_manifests_at_least() -> None:
    assert len(WRONG) >= 10
