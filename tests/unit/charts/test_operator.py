"""The operator's own chart: its rights, its environment, its alerts."""

import json
import re
from dataclasses import fields, replace
from typing import Any

import pytest
import yaml

import fencepost_operator.uninstall
from fencepost_operator.adapters.helm.command import _PATIENCE as HELM_PATIENCE
from fencepost_operator.adapters.kubernetes.leases import KubernetesShardLeases
from fencepost_operator.api import ObjectKey, ReconcileConfig
from fencepost_operator.backoff import JITTER
from fencepost_operator.desired import labels
from fencepost_operator.runtime.controller import PASS_TIMEOUT, STUCK_AFTER
from fencepost_operator.settings import MOST_SHARDS, PREFIX, SLOWEST_RESYNC, Settings
from fencepost_operator.uninstall import refusal
from generators import metrics
from present import present
from unit.charts.rendering import CHARTS, REPOSITORY, HelmError, Object, objects, one

DEFAULT = objects("fencepost", "default")
FULL = objects("fencepost", "full")
VERSION = yaml.safe_load((CHARTS / "fencepost" / "Chart.yaml").read_text())["appVersion"]
CONFINED = objects("fencepost", values={"watchNamespaces": ["flights"]})


def rules(found: list[Object], kind: str) -> list[dict[str, Any]]:
    """All rules of the roles of a kind that are bound to the operator."""
    bound = {item["roleRef"]["name"] for item in found if item["kind"] == f"{kind}Binding"}
    roles = [item for item in found if item["kind"] == kind and item["metadata"]["name"] in bound]
    return [rule for role in roles for rule in role["rules"]]


def operator(found: list[Object]) -> Object:
    """The operator's container."""
    (container,) = one(found, "Deployment", "fencepost")["spec"]["template"]["spec"]["containers"]
    result: Object = container
    return result


@pytest.mark.parametrize(
    ("values", "image"),
    [
        ({}, f"fencepost-operator:{VERSION}"),
        ({"image.registry": "registry.example/fencepost"}, f"registry.example/fencepost/fencepost-operator:{VERSION}"),
        ({"image.registry": "localhost:5000", "image.tag": "x"}, "localhost:5000/fencepost-operator:x"),
        ({"image.registry": None}, f"fencepost-operator:{VERSION}"),
    ],
)
def test_the_image_has_its_registry(values: dict[str, Any], image: str) -> None:
    assert operator(objects("fencepost", values=values))["image"] == image


@pytest.mark.parametrize("found", [DEFAULT, FULL, CONFINED], ids=["default", "full", "confined"])
def test_no_right_is_a_wildcard(found: list[Object]) -> None:
    roles = [item for item in found if item["kind"] in {"Role", "ClusterRole"}]
    assert roles
    for role in roles:
        for rule in role["rules"]:
            assert "*" not in rule.get("apiGroups", []) + rule.get("resources", []) + rule["verbs"]
            assert not {"escalate", "bind", "impersonate"} & set(rule["verbs"])
            assert "nonResourceURLs" not in rule or "metrics-reader" in role["metadata"]["name"]


def test_tokens_are_not_sent_in_the_clear() -> None:
    with pytest.raises(HelmError, match=r"metrics\.authentication: needs metrics\.tls\.secretName"):
        objects("fencepost", values={"metrics.authentication": True})


def test_a_pipelines_pods_are_scraped_under_their_own_names_alone() -> None:
    monitor = one(FULL, "PodMonitor", "fencepost-pipelines")["spec"]
    driver = labels.run_labels(ObjectKey("n", "a"), 1)
    assert monitor["selector"]["matchLabels"].items() <= driver.items()
    (component,) = monitor["selector"]["matchExpressions"]
    assert driver[component["key"]] in component["values"]
    for endpoint in monitor["podMetricsEndpoints"]:
        (kept,) = endpoint["metricRelabelings"]
        assert re.fullmatch(kept["regex"], "fencepost_driver_records_total")
        for name in ("fencepost_pipeline_ready", "fencepost_operator_leader", "up"):
            assert not re.fullmatch(kept["regex"], name)


def test_an_operator_of_some_namespaces_reads_no_secret_elsewhere() -> None:
    everywhere = {resource for rule in rules(CONFINED, "ClusterRole") for resource in rule["resources"]}
    assert everywhere == {"nodes", "namespaces", "customresourcedefinitions"}
    verbs = {tuple(rule["resources"]): rule["verbs"] for rule in rules(CONFINED, "ClusterRole")}
    assert verbs.pop(("nodes",)) == ["get", "list"]  # their addresses are refused to receivers of pages
    assert set(map(tuple, verbs.values())) == {("get",)}
    there = {resource for rule in rules(CONFINED, "Role") for resource in rule["resources"]}
    assert {"streamingpipelines", "secrets", "jobs"} <= there
    by_namespace = {item["metadata"]["namespace"]: item["rules"] for item in CONFINED if item["kind"] == "Role"}
    assert set(by_namespace) == {"flights", "fencepost-system", "kube-node-lease", "default"}
    at_home = [item for item in CONFINED if item["kind"] == "Role" and is_of_releases(item)]
    assert [rule["resources"] for role in at_home for rule in role["rules"]] == [["secrets"]]


def test_rights_are_the_same_everywhere_and_in_some_namespaces() -> None:
    everything = rules(DEFAULT, "ClusterRole")
    (watched,) = [
        item["rules"] for item in CONFINED if item["kind"] == "Role" and item["metadata"]["namespace"] == "flights"
    ]
    assert all(rule in everything for rule in watched)


def is_of_releases(role: Object) -> bool:
    """Whether a Role is for the Secrets of Helm's releases alone."""
    name: str = role["metadata"]["name"]
    return name.endswith("-releases")


def test_the_operator_may_do_to_each_kind_of_the_cluster_what_helm_does() -> None:
    allowed = {
        (group, resource): set(rule["verbs"])
        for rule in rules(DEFAULT, "ClusterRole")
        for group in rule["apiGroups"]
        for resource in rule["resources"]
    }
    for item in objects("spark-cluster", "full"):
        group = item["apiVersion"].rpartition("/")[0]
        assert {"get", "create", "patch", "delete"} <= allowed[group, item["kind"].lower() + "s"], item["kind"]


def environment(found: list[Object]) -> dict[str, str]:
    """The operator's environment as the kubelet makes it, in a pod whose name and uid are known."""
    pod = {"metadata.name": "fencepost-0", "metadata.uid": "1-2-3"}
    made: dict[str, str] = {}
    for item in operator(found)["env"]:
        value = item["value"] if "value" in item else pod[item["valueFrom"]["fieldRef"]["fieldPath"]]
        made[item["name"]] = re.sub(r"\$\((\w+)\)", lambda match: made[match[1]], value)
    return made


def test_its_environment_is_what_its_settings_read() -> None:
    settings = Settings.from_environment(environment(FULL))
    assert settings.scope == "production"
    assert settings.watch_namespaces == ("flights", "weather")
    assert settings.cluster_domain == "k8s.example"
    assert settings.resync_seconds == 30
    read = {f"{PREFIX}{field.name.upper()}" for field in fields(Settings)}
    assert {name for name in environment(FULL) if name.startswith(PREFIX)} <= read


def test_the_charts_defaults_are_the_settings_own() -> None:
    assert replace(Settings.from_environment(environment(DEFAULT)), lease="", holder="") == Settings()


def test_one_operator_is_stopped_before_the_next_and_of_several_none_is_missed() -> None:
    alone = one(objects("fencepost", values={"replicas": 1}), "Deployment", "fencepost")["spec"]
    assert (alone["replicas"], alone["strategy"]) == (1, {"type": "Recreate"})
    spec = one(FULL, "Deployment", "fencepost")["spec"]
    assert spec["replicas"] == 3
    assert spec["strategy"] == {"type": "RollingUpdate", "rollingUpdate": {"maxSurge": 1, "maxUnavailable": 0}}


@pytest.mark.parametrize("found", [DEFAULT, FULL], ids=["default", "full"])
def test_replicas_share_leases_and_their_pods_distinguish_them(found: list[Object]) -> None:
    settings = Settings.from_environment(environment(found))
    assert settings.holder == "fencepost-0_1-2-3"
    (role,) = [item for item in found if item["kind"] == "Role" and item["metadata"]["name"].endswith("-lease")]
    assert role["metadata"]["namespace"] == settings.namespace
    leases = KubernetesShardLeases(api=None, namespace=settings.namespace, name=settings.lease)  # type: ignore[arg-type]
    names = [leases.of(shard).name for shard in range(MOST_SHARDS)]
    assert [rule.get("resourceNames") for rule in role["rules"]] == [None, names]
    assert role["rules"][0]["verbs"] == ["create", "list"]


@pytest.mark.parametrize(("most", "shards"), [(3, 3), (0, 32), (5, 1)])
def test_each_shard_has_a_part_of_the_planned_restarts(most: int, shards: int) -> None:
    settings = Settings.from_environment(
        environment(objects("fencepost", values={"shards": shards, "maxConcurrentRestarts": most}))
    )
    assert (settings.shards, settings.max_concurrent_restarts) == (shards, most)


def test_two_replicas_are_the_default_and_each_revision_of_them_is_on_different_nodes() -> None:
    spec = one(DEFAULT, "Deployment", "fencepost")["spec"]
    assert spec["replicas"] == 2
    (spread,) = spec["template"]["spec"]["topologySpreadConstraints"]
    assert (spread["topologyKey"], spread["maxSkew"]) == ("kubernetes.io/hostname", 1)
    assert spread["whenUnsatisfiable"] == "ScheduleAnyway", "one node is enough for an installation"
    # The replicas of the revision before do not count: in a rollout they would send both new ones to one node.
    assert spread["matchLabelKeys"] == ["pod-template-hash"]
    labels = spec["template"]["metadata"]["labels"]
    assert spread["labelSelector"]["matchLabels"].items() <= labels.items()


@pytest.mark.parametrize("found", [DEFAULT, FULL], ids=["default", "full"])
def test_a_lost_node_costs_the_operator_seconds(found: list[Object]) -> None:
    pod = one(found, "Deployment", "fencepost")["spec"]["template"]["spec"]
    of_nodes = [item for item in pod["tolerations"] if item["key"].startswith("node.")]
    seconds = {item["key"]: item.get("tolerationSeconds") for item in of_nodes}
    assert seconds == {"node.kubernetes.io/unreachable": 0, "node.kubernetes.io/not-ready": 10}
    budget = one(found, "PodDisruptionBudget", "fencepost")["spec"]
    assert budget["maxUnavailable"] == 1
    labels = one(found, "Deployment", "fencepost")["spec"]["template"]["metadata"]["labels"]
    assert budget["selector"]["matchLabels"].items() <= labels.items()


def test_tolerations_and_a_spread_of_the_values_take_precedence() -> None:
    own = {"key": "node.kubernetes.io/unreachable", "operator": "Exists", "effect": "NoExecute"}
    given = [{"maxSkew": 1, "topologyKey": "topology.kubernetes.io/zone", "whenUnsatisfiable": "DoNotSchedule"}]
    found = objects("fencepost", values={"tolerations": [own], "topologySpreadConstraints": given})
    pod = one(found, "Deployment", "fencepost")["spec"]["template"]["spec"]
    assert own in pod["tolerations"]
    assert len(pod["tolerations"]) == 2
    assert pod["topologySpreadConstraints"] == given


def test_helm_writes_where_it_may() -> None:
    variables = environment(DEFAULT)
    homes = [variables[name] for name in ("HOME", "HELM_CACHE_HOME", "HELM_CONFIG_HOME", "HELM_DATA_HOME")]
    assert all(home.startswith("/tmp") for home in homes)  # noqa: S108 - a folder of the container
    assert {"name": "tmp", "mountPath": "/tmp"} in operator(DEFAULT)["volumeMounts"]  # noqa: S108


def test_the_service_serves_the_metrics_and_probes_have_a_port_of_their_own() -> None:
    container = operator(DEFAULT)
    service = one(DEFAULT, "Service", "-metrics")["spec"]
    assert container["ports"] == [
        {"name": "probes", "containerPort": Settings().probes_port},
        {"name": "http", "containerPort": Settings().metrics_port},
    ]
    assert service["ports"] == [{"name": "http", "port": 8080, "targetPort": "http"}]
    labels = one(DEFAULT, "Deployment", "fencepost")["spec"]["template"]["metadata"]["labels"]
    assert service["selector"].items() <= labels.items()
    monitor = one(FULL, "ServiceMonitor", "fencepost")["spec"]
    assert monitor["selector"]["matchLabels"].items() <= one(FULL, "Service", "-metrics")["metadata"]["labels"].items()


PARTS = {"histogram": ("_bucket", "_count", "_sum"), "summary": ("_count", "_sum")}
"""Series of a metric, by its type."""


def test_alerts_ask_for_metrics_that_exist() -> None:
    served = {
        f"{each.name}{part}"
        for each in (*metrics.operator(), *metrics.driver(), *metrics.worker())
        for part in PARTS.get(each.kind, ("",))
    }
    groups = one(FULL, "PrometheusRule", "fencepost")["spec"]["groups"]
    alerts = [rule for group in groups for rule in group["rules"]]
    asked = {name for rule in alerts for name in re.findall(r"\bfencepost_\w+", rule["expr"])}
    assert asked
    assert asked <= served


def test_the_alert_on_passes_is_later_than_the_slowest_healthy_pass_and_sooner_than_a_hanging_one() -> None:
    groups = one(FULL, "PrometheusRule", "fencepost")["spec"]["groups"]
    (alert,) = [rule for group in groups for rule in group["rules"] if rule["alert"] == "FencepostOperatorLoopStuck"]
    match = re.fullmatch(
        r"time\(\) - max by .* \(fencepost_pipeline_last_success_timestamp_seconds(?:\{.*\})?\) > (\d+)", alert["expr"]
    )
    seen_within = 2 * ReconcileConfig(cluster_uid="").observation_timeout
    healthy = SLOWEST_RESYNC * (1 + JITTER) + seen_within + HELM_PATIENCE
    assert healthy <= float(present(match)[1]) <= PASS_TIMEOUT
    assert STUCK_AFTER > PASS_TIMEOUT + SLOWEST_RESYNC * (1 + JITTER)


def test_the_chart_and_the_settings_have_one_bound_of_the_resync() -> None:
    schema = json.loads((CHARTS / "fencepost" / "values.schema.json").read_text())
    assert schema["properties"]["resyncSeconds"]["maximum"] == SLOWEST_RESYNC
    assert Settings.from_environment({"FENCEPOST_RESYNC_SECONDS": "60"}).resync_seconds == SLOWEST_RESYNC


def test_every_alert_says_how_bad_it_is_and_what_to_read() -> None:
    groups = one(FULL, "PrometheusRule", "fencepost")["spec"]["groups"]
    for rule in (rule for group in groups for rule in group["rules"]):
        severities = {"none"} if rule["alert"] == "FencepostWatchdog" else {"critical", "warning"}
        assert rule["labels"]["severity"] in severities
        assert rule["annotations"]["runbook_url"] == f"https://fencepost.example/runbooks/{rule['alert']}.md"
        assert {"summary", "description"} <= set(rule["annotations"])


def test_the_crds_are_files_of_the_chart() -> None:
    """The folder crds/ has links to them, and not the reverse: Flux leaves symbolic links out of a chart."""
    shipped = list((CHARTS / "fencepost" / "files" / "crds").iterdir())
    assert not [path for path in shipped if path.is_symlink()]
    assert {path.resolve() for path in (REPOSITORY / "crds").iterdir()} == {path.resolve() for path in shipped}


@pytest.mark.parametrize("keep", [True, False])
def test_the_chart_installs_the_crds_unless_something_else_does(keep: bool) -> None:
    crds = {
        crd["metadata"]["name"]: crd
        for crd in (yaml.safe_load(path.read_text()) for path in (REPOSITORY / "crds").iterdir())
    }
    found = objects("fencepost", values={"crds": {"enabled": True, "keep": keep}})
    rendered = {item["metadata"]["name"]: item for item in found if item["kind"] == "CustomResourceDefinition"}
    for crd in rendered.values():
        annotations = crd["metadata"].pop("annotations", {})
        assert annotations == ({"helm.sh/resource-policy": "keep"} if keep else {})
    assert rendered == crds
    assert not [item for item in objects("fencepost") if item["kind"] == "CustomResourceDefinition"]


def guard(**values: Any) -> list[Object]:
    """The Job that guards an uninstall, if there is one."""
    return [item for item in objects("fencepost", values=values) if item["kind"] == "Job"]


def test_an_uninstall_is_refused_before_anything_is_removed() -> None:
    (job,) = guard(watchNamespaces=["flights", "weather"])
    assert job["metadata"]["annotations"]["helm.sh/hook"] == "pre-delete"
    pod = job["spec"]["template"]["spec"]
    (container,) = pod["containers"]
    assert container["command"] == ["python", "-m", fencepost_operator.uninstall.__name__]
    Settings.from_environment({item["name"]: item["value"] for item in container["env"]})
    assert {"name": "FENCEPOST_WATCH_NAMESPACES", "value": "flights,weather"} in container["env"]
    deployment = one(objects("fencepost"), "Deployment", "fencepost")
    template = deployment["spec"]["template"]
    assert pod["serviceAccountName"] == template["spec"]["serviceAccountName"], (
        "it has the operator's rights, no others"
    )
    selector = deployment["spec"]["selector"]["matchLabels"]
    assert not selector.items() <= job["spec"]["template"]["metadata"]["labels"].items(), "no Service leads to it"
    assert "has-pipelines" in job["metadata"]["name"], "all that Helm says of a hook that fails is its name"


def test_an_uninstall_without_a_guard() -> None:
    assert not guard(uninstallGuard=False)
    assert guard(uninstallGuard=None), "as with the values of a chart before it"
    assert len(guard(fullnameOverride="x" * 53)[0]["metadata"]["name"]) <= 63


def test_a_refusal_names_the_pipelines_and_the_way_out() -> None:
    assert not refusal(())
    said = refusal([ObjectKey("flights", f"p-{number}") for number in range(30)])
    assert said.startswith("30 pipelines exist: flights/p-0, ")
    assert "p-20" not in said
    assert "kubectl delete streamingpipelines" in said
    assert "--no-hooks" in said
    assert "\n" not in said


@pytest.mark.parametrize(("tls", "port"), [("", "http"), ("certificate", "https")])
def test_a_network_policy_lets_its_peers_alone_scrape(tls: str, port: str) -> None:
    peer = {"namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": "monitoring"}}}
    values = {
        "metrics.networkPolicy.enabled": True,
        "metrics.networkPolicy.from": [peer],
        "metrics.tls.secretName": tls,
    }
    scrapes, probes = one(objects("fencepost", values=values), "NetworkPolicy", "-metrics")["spec"]["ingress"]
    assert scrapes == {"from": [peer], "ports": [{"port": port}]}
    assert probes == {"ports": [{"port": "probes"}]}


def test_a_network_policy_without_peers_is_refused() -> None:
    with pytest.raises(HelmError, match=r"metrics\.networkPolicy\.from: name who may scrape"):
        objects("fencepost", values={"metrics.networkPolicy.enabled": True})
