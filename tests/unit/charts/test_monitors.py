"""Who reads metrics, and with what: the ServiceMonitor's token, and the documented wall around a pipeline's pods."""

import re

import pytest
import yaml

from fencepost_operator.api import ObjectKey
from fencepost_operator.desired import labels
from unit.charts.rendering import REPOSITORY, HelmError, objects, one, pod_templates

FULL = objects("fencepost", "full")


def test_prometheus_sends_a_secrets_token_where_it_may_read_no_files() -> None:
    """With `arbitraryFSAccessThroughSMs.deny` the Prometheus operator refuses each field whose name ends with File."""
    secret = {"metrics.serviceMonitor.authorization.secretName": "prometheus-token"}
    usual, without_files = (
        one(objects("fencepost", "full", values), "ServiceMonitor", "fencepost")["spec"]["endpoints"][0]
        for values in ({}, secret)
    )
    assert usual.pop("bearerTokenFile")
    credentials = {"name": "prometheus-token", "key": "token"}
    assert without_files == {**usual, "authorization": {"type": "Bearer", "credentials": credentials}}
    assert not re.search(r"[a-z]File\b", str(without_files))
    assert without_files["tlsConfig"]["ca"] == {"secret": {"name": "metrics-certificate", "key": "ca.crt"}}
    with pytest.raises(HelmError, match=r"serviceMonitor\.authorization\.secretName: needs metrics\.authentication"):
        objects("fencepost", "full", {**secret, "metrics.authentication": False})
    older = objects("fencepost", "full", {"metrics.serviceMonitor.authorization": None})
    assert one(older, "ServiceMonitor", "fencepost")["spec"]["endpoints"][0].keys() == {*usual, "bearerTokenFile"}


LIMITS = {"sampleLimit", "bodySizeLimit", "labelLimit", "labelNameLengthLimit", "labelValueLengthLimit", "targetLimit"}


@pytest.mark.parametrize(("kind", "name"), [("PodMonitor", "fencepost-pipelines"), ("ServiceMonitor", "fencepost")])
def test_a_scrape_is_bounded_in_all_that_a_tenant_can_make_large(kind: str, name: str) -> None:
    assert one(FULL, kind, name)["spec"].keys() >= LIMITS


def test_the_documented_policy_lets_prometheus_reach_what_the_pod_monitor_names_and_nothing_else() -> None:
    text = (REPOSITORY / "docs" / "operations.md").read_text()
    (documented,) = re.findall(r"^```yaml\n([^`]*kind: NetworkPolicy\n[^`]*)```", text, re.MULTILINE)
    spec = yaml.safe_load(documented)["spec"]
    of_pipelines, of_prometheus = spec["ingress"]
    endpoints = one(FULL, "PodMonitor", "fencepost-pipelines")["spec"]["podMetricsEndpoints"]
    assert of_prometheus["ports"] == [{"port": each["port"]} for each in endpoints]
    assert of_pipelines == {"from": [{"podSelector": spec["podSelector"]}]}

    (selected,) = spec["podSelector"]["matchExpressions"]
    assert selected["operator"] == "Exists"
    cluster = {
        name: template["metadata"]["labels"] for name, template in pod_templates(objects("spark-cluster", "default"))
    }
    assert len(cluster) == 2
    for of_pod in (labels.run_labels(ObjectKey("n", "a"), 1), *cluster.values()):
        assert selected["key"] in of_pod
    ((_, of_operator),) = pod_templates([one(FULL, "Deployment", "fencepost")])
    assert selected["key"] not in of_operator["metadata"]["labels"]
