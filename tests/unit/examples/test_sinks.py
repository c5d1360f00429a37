"""The examples of sinks are what the API server and the operator accept, and what a driver opens."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import yaml

from fencepost.contract import FilesSink, HttpSink
from fencepost_operator.api import Spec, parse
from fencepost_operator.desired.jobs.driver_config import sinks_of
from unit.crds.schema import ROOT as SCHEMA
from unit.examples.test_manifests import unknown

EXAMPLES = Path(__file__).parents[3] / "examples"


def accepted(name: str) -> Spec:
    written: dict[str, Any] = yaml.safe_load((EXAMPLES / name).read_text())
    assert unknown(written["spec"], SCHEMA["properties"]["spec"], "spec") == []
    spec = parse(written)
    assert isinstance(spec, Spec), spec
    return spec


def test_files() -> None:
    spec = accepted("files.yaml")
    assert sinks_of(spec) == (
        FilesSink(
            name="departures",
            path="s3://lake/departures",
            folders=("carrier",),
            endpoint="https://objects.example",
            region="us-east-1",
        ),
    )
    assert spec.sinks[0].options_secret == "lake"  # noqa: S105 - an object's name


def test_http() -> None:
    spec = accepted("http.yaml")
    assert sinks_of(spec) == (HttpSink(name="invoices", url="https://billing.example/invoices"),)
    assert spec.sinks[0].options_secret == "billing"  # noqa: S105 - an object's name
