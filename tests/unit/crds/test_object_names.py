"""Names of ConfigMaps and Secrets in the spec: the schema and the operator refuse what no object can be called."""

from __future__ import annotations

import json
from typing import Any, Final

import jsonschema
import pytest

from fakes.manifests import spec
from fencepost_operator.api import Spec, parse
from unit.crds.schema import ROOT

SPEC: Final = jsonschema.Draft202012Validator(ROOT["properties"]["spec"])
"""Of a schema that is checked once."""

FIELDS: dict[str, dict[str, Any]] = {
    "spec.job.env[0].valueFrom.secretKeyRef.name": {
        "job": {"env": [{"name": "A", "valueFrom": {"secretKeyRef": {"name": "NAME", "key": "k"}}}]}
    },
    "spec.job.env[0].valueFrom.configMapKeyRef.name": {
        "job": {"env": [{"name": "A", "valueFrom": {"configMapKeyRef": {"name": "NAME", "key": "k"}}}]}
    },
    "spec.job.envFrom[0].secretRef.name": {"job": {"envFrom": [{"secretRef": {"name": "NAME"}}]}},
    "spec.job.envFrom[0].configMapRef.name": {"job": {"envFrom": [{"configMapRef": {"name": "NAME"}}]}},
    "spec.job.codeFrom.configMapName": {"job": {"codeFrom": {"configMapName": "NAME"}}},
    "spec.job.imagePullSecrets[0].name": {"job": {"imagePullSecrets": [{"name": "NAME"}]}},
    "spec.source.kafka.propertiesFrom.secretName": {"source": {"kafka": {"propertiesFrom": {"secretName": "NAME"}}}},
    "spec.source.kafka.schemaRegistry.credentialsFrom.secretName": {
        "source": {"kafka": {"schemaRegistry": {"url": "http://r", "credentialsFrom": {"secretName": "NAME"}}}}
    },
    "spec.sinks[0].plugin.optionsFrom.secretName": {
        "sinks": [{"name": "s", "plugin": {"kind": "k", "optionsFrom": {"secretName": "NAME"}}}]
    },
    "spec.checkpoint.cassandra.tls.secretName": {"checkpoint": {"cassandra": {"tls": {"secretName": "NAME"}}}},
    "spec.checkpoint.cassandra.credentialsFrom.secretName": {
        "checkpoint": {"cassandra": {"credentialsFrom": {"secretName": "NAME"}}}
    },
    "spec.checkpoint.postgresql.tls.secretName": {"checkpoint": {"postgresql": {"tls": {"secretName": "NAME"}}}},
    "spec.checkpoint.postgresql.credentialsFrom.secretName": {
        "checkpoint": {"postgresql": {"credentialsFrom": {"secretName": "NAME"}}}
    },
}


@pytest.mark.parametrize("name", ["../x", "..", "a/b", "Upper", "a..b", "-a", "a" * 254, "a%2fb", ""])
@pytest.mark.parametrize("field", FIELDS)
def test_a_name_that_no_object_can_have_is_a_violation_of_its_field(field: str, name: str) -> None:
    """`../x` reached the API server's path, was refused there, and read KubernetesUnreachable."""
    written = manifest(field, name)
    found = parse({"spec": written})
    assert isinstance(found, tuple)
    assert field in [violation.field for violation in found]
    with pytest.raises(jsonschema.ValidationError):
        SPEC.validate(written)


@pytest.mark.parametrize("name", ["a", "tls-of-kafka", "kafka.2026", "a" * 253])
@pytest.mark.parametrize("field", FIELDS)
def test_a_name_that_an_object_can_have_is_accepted(field: str, name: str) -> None:
    written = manifest(field, name)
    assert isinstance(parse({"spec": written}), Spec)
    SPEC.validate(written)


def manifest(field: str, name: str) -> dict[str, Any]:
    """Return a spec with a name in one field."""
    change = json.loads(json.dumps(FIELDS[field]).replace("NAME", name))
    plain = spec()
    if "postgresql" in change.get("checkpoint", {}):
        plain["sinks"] = [{"name": "s", "plugin": {"kind": "k"}}]
        plain["checkpoint"] = {"postgresql": {"hosts": ["h"], "credentialsFrom": {"secretName": "a"}}}
        plain["checkpoint"]["postgresql"] |= change.pop("checkpoint")["postgresql"]
    for group, fields in change.items():
        if group == "sinks":
            plain[group] = fields
        else:
            inner = "kafka" if group == "source" else "cassandra" if group == "checkpoint" else None
            target = plain[group][inner] if inner else plain[group]
            target |= fields[inner] if inner else fields
    return plain
