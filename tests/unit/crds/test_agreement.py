"""The CRD and the operator's dataclasses say the same; what one of them forgot would be pruned in silence."""

import re
import types
import typing
from collections.abc import Iterator, Mapping
from dataclasses import MISSING, fields, is_dataclass
from datetime import datetime
from enum import Enum
from typing import Any

import jsonschema
import pytest
import yaml
from pydantic.alias_generators import to_camel as camel

from fencepost.contract import kafka_properties, spark_conf
from fencepost.contract.tables import OWN_TABLES
from fencepost_operator.api import GROUP, KIND, PLURAL, VERSION, Spec, State, Status, parse, write_status
from fencepost_operator.api.crd_fields import KINDS
from generators.crds import crd
from unit.crds.schema import CRD, REPOSITORY, ROOT, Schema, at, defaulted, minimal, strict, walk
from unit.crds.schema import VERSION as CRD_VERSION

SCALARS: dict[type, Schema] = {
    str: {"type": "string"},
    int: {"type": "integer"},
    bool: {"type": "boolean"},
    float: {"type": "number"},
    datetime: {"type": "string", "format": "date-time"},
}


def disagreements(hint: Any, schema: Schema, path: str) -> Iterator[str]:
    """Where a dataclass's type and a schema differ, in either direction."""
    origin, parts = typing.get_origin(hint), typing.get_args(hint)
    if origin in {types.UnionType, typing.Union}:
        (hint,) = (part for part in parts if part is not types.NoneType)
        yield from disagreements(hint, schema, path)
    elif is_dataclass(hint):
        yield from _fields(hint, schema, path)
    elif origin is tuple:
        yield from disagreements(parts[0], schema.get("items", {}), f"{path}[]")
    elif origin is not None and issubclass(origin, Mapping):
        yield from disagreements(parts[1], schema.get("additionalProperties", {}), f"{path}{{}}")
    else:
        wanted = SCALARS[str if issubclass(hint, Enum) else hint]
        yield from (f"{path}: {name} should be {value}" for name, value in wanted.items() if schema.get(name) != value)


def _fields(kind: Any, schema: Schema, path: str) -> Iterator[str]:
    hints = typing.get_type_hints(kind)
    described = schema.get("properties", {})
    ours = {camel(part.name): part for part in fields(kind)}
    yield from (f"{path}.{name}: not in the operator" for name in described.keys() - ours.keys())
    yield from (f"{path}.{name}: not in the CRD, it would be pruned" for name in ours.keys() - described.keys())
    for name in ours.keys() & described.keys():
        yield from disagreements(hints[ours[name].name], described[name], f"{path}.{name}")
    always = {name for name, part in ours.items() if part.default is MISSING and part.default_factory is MISSING}
    yield from (f"{path}.{name}: required, but not always written" for name in set(schema.get("required", [])) - always)


def test_the_names_are_the_operators() -> None:
    assert (CRD["spec"]["group"], CRD["spec"]["names"]["plural"], CRD["spec"]["names"]["kind"]) == (GROUP, PLURAL, KIND)
    assert CRD_VERSION["name"] == VERSION


@pytest.mark.parametrize("plural", KINDS)
def test_the_files_are_what_the_types_say(plural: str) -> None:
    assert (REPOSITORY / "crds" / f"{plural}.{GROUP}.yaml").read_text() == crd(plural), "run `make reference`"


def test_the_status_is_what_the_operator_writes() -> None:
    assert list(disagreements(Status, at("status"), "status")) == []


def test_the_walk_sees_a_field_that_only_one_side_has() -> None:
    schema = {"properties": {"name": {"type": "integer"}, "more": {"type": "string"}}, "required": ["podName"]}
    hint = typing.get_type_hints(Status)["run"]
    found = "\n".join(disagreements(hint, schema, "run"))
    assert "run.more: not in the operator" in found
    assert "run.epoch: not in the CRD" in found
    assert "run.name: type should be string" in found
    assert "run.podName: required" in found


def test_a_written_status_passes_the_schema() -> None:
    jsonschema.validate(write_status(Status()), strict(at("status")))


def test_every_state_is_explained() -> None:
    assert all(state.value in at("status.state")["description"] for state in State)


def test_the_schemas_defaults_are_the_operators() -> None:
    bare = minimal()
    assert isinstance(parse(bare), Spec)
    assert parse(defaulted(bare)) == parse(bare)


def test_what_the_schema_reserves_the_operator_refuses() -> None:
    (reserved,) = [
        rule["rule"]
        for rule in at("spec.cluster.sparkConf")["x-kubernetes-validations"]
        if "spark.master'" in rule["rule"]
    ]
    listed, prefixes = re.findall(r"'(spark[\w.]+)'", reserved), re.findall(r"startsWith\('([\w.]+)'\)", reserved)
    assert set(prefixes) == set(spark_conf.RESERVED_PREFIXES)
    assert set(listed) - set(prefixes) == spark_conf.RESERVED_KEYS
    for key in ("spark.sql.shuffle.partitions", "spark.executor.memory", "spark.masterful"):
        assert not spark_conf.is_reserved(key)


def test_what_the_operator_reserves_the_schema_refuses() -> None:
    listed, passwords = (
        set(re.findall(r"'([a-z._]+)'", rule["rule"]))
        for rule in at("spec.source.kafka.properties")["x-kubernetes-validations"][-2:]
    )
    assert listed == kafka_properties.RESERVED
    assert passwords == kafka_properties.SECRETS
    tables = " ".join(rule["rule"] for rule in at("spec")["x-kubernetes-validations"])
    assert all(f"'{table}'" in tables for table in OWN_TABLES)


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
