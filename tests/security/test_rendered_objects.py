"""Hostile text in every string of a spec, through the real Helm: the objects that come out never change."""

from __future__ import annotations

import contextlib
import json
import subprocess
from typing import Any, Final

import jsonschema
import pytest
import yaml
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from fakes import manifests
from fencepost_operator.adapters.helm.post_renderer import Expected, annotations_digest, checked, json_line
from fencepost_operator.api import ObjectKey, Pipeline, Spec, Violation, read_pipeline
from fencepost_operator.api.codec import encode
from fencepost_operator.desired.identity.hashes import checkpoint_secrets
from security.hostile import LINE_BREAKS, MANIFEST, hostile_text
from security.java_properties import load
from security.places import Place, patterns, places, sample
from testbed.home import Home
from unit.charts.rendering import CHARTS, REPOSITORY, HelmError, Object
from unit.crds.schema import at, defaulted

BODY: Final[dict[str, Any]] = yaml.safe_load(
    (REPOSITORY / "tests" / "e2e" / "mistakes" / "manifests" / "everything.yaml").read_text()
)
BODY["spec"]["cluster"]["affinity"] = sample(at("spec.cluster.affinity"))
IN_POSTGRESQL: Final[dict[str, Any]] = yaml.safe_load(
    (REPOSITORY / "tests" / "e2e" / "mistakes" / "manifests" / "everything-in-postgresql.yaml").read_text()
)
UID: Final = "5d6a2fd6-9b23-438b-9361-8f3460c92464"
LONGEST_KEY: Final = 1024
"""Characters of a key that YAML allows on one line; Helm refuses values with longer ones."""
KEY: Final = ObjectKey("flights", "everything")
GENERATION: Final = 7
SCHEMA: Final = jsonschema.Draft7Validator(json.loads((CHARTS / "spark-cluster" / "values.schema.json").read_text()))
EXPECTED: Final = {
    ("Secret", "flights", "everything-g7-auth"),
    ("ConfigMap", "flights", "everything-g7-conf"),
    ("Service", "flights", "everything-g7-master"),
    ("Service", "flights", "everything-g7-worker"),
    ("StatefulSet", "flights", "everything-g7-master"),
    ("StatefulSet", "flights", "everything-g7-worker"),
    ("PodDisruptionBudget", "flights", "everything-g7-worker"),
}
VOLUME: Final = ("PersistentVolumeClaim", "flights", "everything-g7-recovery")


def read(body: dict[str, Any]) -> Pipeline:
    stored = defaulted(body)
    stored["metadata"] = stored["metadata"] | {"namespace": KEY.namespace, "uid": UID}
    return read_pipeline(stored)


def values_of(spec: Spec) -> dict[str, Any]:
    return manifests.values_of(read(BODY), spec, generation=GENERATION)


def rendered(values: dict[str, Any]) -> str:
    """What Helm renders of values as the operator passes them. Raises HelmError."""
    command = [str(Home.of_user().bin / "helm"), "template", "fencepost-everything", str(CHARTS / "spark-cluster")]
    command += ["--namespace", KEY.namespace, "--values", "-"]
    result = subprocess.run(command, input=json_line(values).encode(), capture_output=True, check=False)
    if result.returncode:
        raise HelmError(result.stderr.decode()[-2000:])
    return result.stdout.decode()


def objects(text: str) -> list[Object]:
    return [found for found in yaml.safe_load_all(text) if found]


def identities(found: list[Object]) -> set[tuple[str, str, str]]:
    return {(item["kind"], item["metadata"]["namespace"], item["metadata"]["name"]) for item in found}


def has_volume(spec: Spec) -> bool:
    return bool(spec.cluster.master.storage.storage_class_name)


def expected(spec: Spec) -> set[tuple[str, str, str]]:
    """The objects of a spec, by kind, namespace and name."""
    return EXPECTED | ({VOLUME} if has_volume(spec) else set())


def accepted(body: dict[str, Any], place: Place, text: str) -> dict[str, Any] | None:
    """The manifest with the text in its place, or None when the parser (by the field's name) or Helm refuses it."""
    changed = place.written(body, text)
    spec = read(changed).spec
    if isinstance(spec, Spec):
        if place.is_key and len(json_line(text)) > LONGEST_KEY:
            return None
        in_affinity = "affinity" in place.steps  # any text is a value there; the check costs most of the time
        return changed if in_affinity or SCHEMA.is_valid(values_of(spec)) else None
    assert all(isinstance(violation, Violation) for violation in spec)
    field = place.field
    # One list or map above is near enough: a name that is there twice is reported for the list.
    near = field.rpartition("[")[0] or field.rpartition(".")[0]
    assert any(near in str(violation) for violation in spec), (field, spec)
    return None


def test_the_manifests_have_a_text_in_every_place_of_the_schema() -> None:
    assert {place.pattern for body in (BODY, IN_POSTGRESQL) for place in places(body)} == patterns()


@pytest.mark.parametrize("mark", LINE_BREAKS, ids=ascii)
def test_a_line_break_in_spark_conf_makes_no_object(mark: str) -> None:
    """Histories of the audit: U+0085, U+2028 and U+2029 ended the block scalar of spark-defaults.conf."""
    text = f"x{mark}{MANIFEST}".replace("\n", mark)
    body = Place(("spec", "cluster", "sparkConf", "spark.app.note"), is_key=False, pattern="").written(BODY, text)
    spec = read(body).spec
    if isinstance(spec, Spec):
        with contextlib.suppress(HelmError):  # nothing is applied of what Helm refuses
            assert identities(objects(rendered(values_of(spec)))) == expected(spec)


@settings(
    max_examples=10,
    deadline=None,
    suppress_health_check=list(HealthCheck),
    phases=[Phase.explicit, Phase.reuse, Phase.generate],  # each step of shrinking would run Helm
)
@given(st.sampled_from([BODY, IN_POSTGRESQL]), st.data())
def test_no_text_of_a_spec_changes_which_objects_are_applied(written: dict[str, Any], data: st.DataObject) -> None:
    body = written
    for place in places(written):
        body = accepted(body, place, data.draw(hostile_text)) or body if not place.is_key else body
    for place in places(body):
        body = accepted(body, place, data.draw(hostile_text)) or body if place.is_key else body
    spec = read(body).spec
    assert isinstance(spec, Spec)
    text = rendered(values_of(spec))
    found = objects(text)
    assert identities(found) == expected(spec)
    assert_exact(found, spec)
    assert objects(checked(text, applied(spec))) == found


def applied(spec: Spec) -> Expected:
    """What Helm may apply for a spec."""
    return Expected(
        namespace="flights", stem="everything-g7", owner=values_of(spec)["ownerReference"],
        service_account=spec.cluster.service_account_name or "",
        pod_annotations=annotations_digest(spec.cluster.pod_annotations),
        secrets=[name.removeprefix("Secret/") for name in checkpoint_secrets(spec.checkpoint)],
        volume=has_volume(spec),
    )  # fmt: skip


def assert_exact(found: list[Object], spec: Spec) -> None:
    """What the author wrote arrives unchanged, character by character."""
    (conf,) = [item["data"] for item in found if item["kind"] == "ConfigMap"]
    settings_ = load(conf["spark-defaults.conf"])
    assert spec.cluster.spark_conf.items() <= settings_.items()
    template = one(found, "everything-g7-worker")["spec"]["template"]
    assert template["metadata"]["annotations"].items() >= spec.cluster.pod_annotations.items()
    worker = template["spec"]
    assert worker.get("serviceAccountName") == spec.cluster.service_account_name
    assert worker["automountServiceAccountToken"] is False
    (container,) = worker["containers"]
    assert container["env"][: len(spec.job.env)] == encode(spec.job.env)
    assert container.get("envFrom", []) == encode(spec.job.env_from)
    assert container["image"] == (spec.cluster.image or spec.job.image)
    assert worker.get("affinity", {}) == (encode(spec.cluster.affinity) or {})
    assert worker.get("tolerations", []) == encode(spec.cluster.tolerations)
    assert worker.get("nodeSelector", {}) == spec.cluster.node_selector
    assert worker.get("priorityClassName") == (spec.cluster.priority_class_name or None)


def one(found: list[Object], name: str) -> Object:
    (match,) = [item for item in found if (item["kind"], item["metadata"]["name"]) == ("StatefulSet", name)]
    return match
