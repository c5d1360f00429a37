"""The example of a schema registry is what the API server and the operator accept."""

from __future__ import annotations

from pathlib import Path

import yaml

from fencepost.contract import Format
from fencepost_operator.api import Spec, parse
from unit.crds.schema import ROOT as SCHEMA
from unit.examples.test_manifests import unknown

FILE = Path(__file__).parents[3] / "examples/schema-registry.yaml"


def test_the_manifest_is_accepted() -> None:
    written = yaml.safe_load(FILE.read_text())
    assert unknown(written["spec"], SCHEMA["properties"]["spec"], "spec") == []
    spec = parse(written)
    assert isinstance(spec, Spec), spec
    assert spec.source.kafka.value is not None
    assert spec.source.kafka.value.format is Format.AVRO
    assert spec.source.kafka.registry_secret == "schema-registry"  # noqa: S105 - an object's name
