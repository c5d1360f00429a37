"""A wrong value is refused by the chart's schema, in words that name it."""

import json
from collections.abc import Iterator
from typing import Any

import pytest
import yaml

from unit.charts.rendering import CHARTS, HelmError, render


@pytest.mark.parametrize(
    ("chart", "values", "named"),
    [
        ("spark-cluster", {"nodes": 3}, "nodes"),
        ("spark-cluster", {"worker.memory": "1Gi"}, "/worker/memory"),
        ("spark-cluster", {"worker.threads": 2}, "threads"),
        ("spark-cluster", {"workers": -1}, "/workers"),
        ("spark-cluster", {"generation": 0}, "/generation"),
        ("spark-cluster", {"pipeline": "Departures"}, "/pipeline"),
        ("spark-cluster", {"files": {"spark-defaults.conf": True}}, "/files/spark-defaults.conf"),
        ("spark-cluster", {"files": {"spark-defaults.conf": "a=\u2028b"}}, "/files/spark-defaults.conf"),
        ("spark-cluster", {"files": {"spark-env.sh": "id"}}, "spark-env.sh"),
        ("spark-cluster", {"namespace": "kube_system"}, "/namespace"),
        ("spark-cluster", {"ownerReference": {"uid": "1"}}, "/ownerReference"),
        ("spark-cluster", {"master.storage.size": "64 MB"}, "/master/storage/size"),
        ("spark-cluster", {"pipeline": "departures-of-every-airport-in-the-world", "generation": 1000}, "pipeline"),
        ("fencepost", {"replica": 2}, "replica"),
        ("fencepost", {"replicas": -1}, "/replicas"),
        ("fencepost", {"shards": 0}, "/shards"),
        ("fencepost", {"shards": 33}, "/shards"),
        ("fencepost", {"shards": 6, "maxConcurrentRestarts": 5}, "maxConcurrentRestarts"),
        ("fencepost", {"scope": "a/b"}, "/scope"),
        ("fencepost", {"watchNamespaces": "flights"}, "/watchNamespaces"),
        ("fencepost", {"watchNamespaces": ["a", "a"]}, "/watchNamespaces"),
        ("fencepost", {"resyncSeconds": 0}, "/resyncSeconds"),
        ("fencepost", {"resyncSeconds": 61}, "/resyncSeconds"),
        ("fencepost", {"maxConcurrentRestarts": -1}, "/maxConcurrentRestarts"),
        ("fencepost", {"logLevel": "verbose"}, "/logLevel"),
        ("fencepost", {"image.repositry": "x"}, "repositry"),
        ("fencepost", {"runAsUser": 0}, "/runAsUser"),
        ("fencepost", {"metrics.prometheusRule.notReadyFor": "long"}, "/metrics/prometheusRule/notReadyFor"),
        ("fencepost", {"metrics.prometheusRule.enabled": "yes"}, "/metrics/prometheusRule/enabled"),
        ("fencepost", {"metrics.prometheusRule.for.NotReady": "5m"}, "NotReady"),
        ("fencepost", {"metrics.serviceMonitor.authorization.secretName": "A b"}, "/authorization/secretName"),
        ("fencepost", {"metrics.serviceMonitor.authorization.key": ""}, "/authorization/key"),
        ("fencepost", {"metrics.prometheusRule.lookback.gap": "90ms"}, "/metrics/prometheusRule/lookback/gap"),
    ],
)
def test_a_wrong_value_is_refused_by_name(chart: str, values: dict[str, Any], named: str) -> None:
    with pytest.raises(HelmError) as refusal:
        render(chart, values=values)
    assert named in str(refusal.value)


@pytest.mark.parametrize("chart", ["fencepost", "spark-cluster"])
def test_the_schema_and_the_values_speak_of_the_same_keys(chart: str) -> None:
    schema = json.loads((CHARTS / chart / "values.schema.json").read_text())
    values = yaml.safe_load((CHARTS / chart / "values.yaml").read_text())
    del schema["properties"]["global"]
    assert sorted(_keys(schema)) == sorted(_paths(values, schema))


@pytest.mark.parametrize("chart", ["fencepost", "spark-cluster"])
def test_the_schema_refuses_unknown_keys_at_every_level(chart: str) -> None:
    def check(schema: dict[str, Any], path: str) -> None:
        if "properties" in schema:
            assert schema["additionalProperties"] is False, path
        for name, part in schema.get("properties", {}).items():
            check(part, f"{path}.{name}")
        if "items" in schema:
            check(schema["items"], f"{path}[]")

    check(json.loads((CHARTS / chart / "values.schema.json").read_text()), chart)


KUBERNETES_OWN = {"affinity", "resources", "ownerReference"}
"""Objects whose keys are Kubernetes' and are all optional."""


def _keys(schema: dict[str, Any], prefix: str = "") -> Iterator[str]:
    for name, part in schema["properties"].items():
        yield prefix + name
        if "properties" in part and name not in KUBERNETES_OWN:
            yield from _keys(part, f"{prefix}{name}.")


def _paths(values: dict[str, Any], schema: dict[str, Any], prefix: str = "") -> Iterator[str]:
    for name, value in values.items():
        yield prefix + name
        part = schema["properties"].get(name, {})
        if "properties" in part and name not in KUBERNETES_OWN:
            yield from _paths(value, part, f"{prefix}{name}.")
