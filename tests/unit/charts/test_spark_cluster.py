"""The cluster of one pipeline: what makes it safe, and what makes it go away."""

import socket
import subprocess
import sys
from typing import Any

import pytest

from fencepost.contract import CODE_DIR
from unit.charts.rendering import Object, objects, one

FULL = objects("spark-cluster", "full")


def environment(statefulset: Object) -> dict[str, Any]:
    """The container's variables as Kubernetes resolves them: the last of a name wins."""
    (container,) = statefulset["spec"]["template"]["spec"]["containers"]
    return {item["name"]: item.get("value", item.get("valueFrom")) for item in container["env"]}


def test_every_object_goes_with_the_pipeline() -> None:
    for item in FULL:
        (owner,) = item["metadata"]["ownerReferences"]
        assert owner["kind"] == "StreamingPipeline"
        assert owner["blockOwnerDeletion"]


def test_every_object_and_pod_says_whose_it_is() -> None:
    wanted = {
        "app.kubernetes.io/name": "spark-cluster",
        "app.kubernetes.io/instance": "departures",
        "app.kubernetes.io/managed-by": "Helm",
        "streaming.fencepost.dev/pipeline": "departures",
        "streaming.fencepost.dev/generation": "3",
        "team": "data",
    }
    labels = [item["metadata"]["labels"] for item in FULL]
    labels += [item["spec"]["template"]["metadata"]["labels"] for item in FULL if item["kind"] == "StatefulSet"]
    assert all(wanted.items() <= found.items() for found in labels)


def test_two_generations_share_no_name() -> None:
    def names(generation: int) -> set[tuple[str, str]]:
        found = objects("spark-cluster", "default", {"generation": generation})
        return {(item["kind"], item["metadata"]["name"]) for item in found}

    assert names(1) & names(2) == set()


def test_two_generations_share_no_pod() -> None:
    first, second = (objects("spark-cluster", "default", {"generation": generation}) for generation in (1, 2))
    for name in ("-master", "-worker"):
        selector = one(first, "Service", name)["spec"]["selector"]
        assert selector == one(first, "StatefulSet", name)["spec"]["selector"]["matchLabels"]
        labels = one(second, "StatefulSet", name)["spec"]["template"]["metadata"]["labels"]
        assert not selector.items() <= labels.items()


def test_scaling_changes_the_workers_number_and_nothing_else() -> None:
    few, many = (objects("spark-cluster", "full", {"workers": workers}) for workers in (2, 9))
    assert one(few, "StatefulSet", "-worker")["spec"].pop("replicas") == 2
    assert one(many, "StatefulSet", "-worker")["spec"].pop("replicas") == 9
    assert few == many


def test_new_code_replaces_workers_and_leaves_the_master() -> None:
    old, new = (objects("spark-cluster", "full", {"codeHash": code}) for code in ("1", "2"))
    assert one(old, "StatefulSet", "-worker") != one(new, "StatefulSet", "-worker")
    assert one(old, "StatefulSet", "-master") == one(new, "StatefulSet", "-master")


def test_what_a_statefulset_cannot_change_depends_on_name_and_generation_alone() -> None:
    plain = objects("spark-cluster", "default", {"generation": 3})
    for name in ("-master", "-worker"):
        first, second = one(plain, "StatefulSet", name)["spec"], one(FULL, "StatefulSet", name)["spec"]
        for field in ("selector", "serviceName", "podManagementPolicy"):
            assert first[field] == second[field]
    volumes = objects(
        "spark-cluster", "default", {"generation": 3, "master": {"storage": {"storageClassName": "slow"}}}
    )
    pods = [one(found, "StatefulSet", "-master")["spec"]["template"]["spec"] for found in (volumes, FULL)]
    assert claim_name(pods[0]) == claim_name(pods[1])


def test_the_master_has_a_volume_only_of_a_named_class() -> None:
    plain_objects = objects("spark-cluster", "default", {})
    assert "PersistentVolumeClaim" not in {item["kind"] for item in plain_objects}
    plain = one(plain_objects, "StatefulSet", "-master")["spec"]
    assert "volumeClaimTemplates" not in plain
    folders = {
        volume["name"]: volume["emptyDir"] for volume in plain["template"]["spec"]["volumes"] if "emptyDir" in volume
    }
    assert folders["recovery"] == {"sizeLimit": "64Mi"}
    claim = one(FULL, "PersistentVolumeClaim", "-recovery")
    assert claim["spec"]["storageClassName"] == "fast"
    full = one(FULL, "StatefulSet", "-master")["spec"]["template"]["spec"]
    assert claim_name(full) == claim["metadata"]["name"]


def claim_name(pod: Object) -> str:
    """The claim that is the volume with the master's files."""
    [recovery] = (volume for volume in pod["volumes"] if volume["name"] == "recovery")
    name: str = recovery["persistentVolumeClaim"]["claimName"]
    return name


def test_names_fit_the_label_that_kubernetes_makes_of_them() -> None:
    found = objects("spark-cluster", "default", {"pipeline": "p" * 38, "generation": 99999})
    revision_hash = 10
    for item in found:
        if item["kind"] == "StatefulSet":
            assert len(item["metadata"]["name"]) + 1 + revision_hash <= 63


@pytest.mark.parametrize("name", ["on", "null", "y", "e1"])
def test_a_name_that_yaml_reads_as_something_else_stays_a_name(name: str) -> None:
    labels = one(objects("spark-cluster", "default", {"pipeline": name}), "Secret", "-auth")["metadata"]["labels"]
    assert labels["streaming.fencepost.dev/pipeline"] == name


def test_master_and_workers_share_the_generations_secret() -> None:
    for name in ("-master", "-worker"):
        variable = environment(one(FULL, "StatefulSet", name))["_SPARK_AUTH_SECRET"]
        assert variable == {"secretKeyRef": {"name": "departures-g3-auth", "key": "secret"}}


def test_the_authors_environment_is_on_the_workers() -> None:
    worker = one(FULL, "StatefulSet", "-worker")
    assert environment(worker)["GREETING"] == "hello"
    (container,) = worker["spec"]["template"]["spec"]["containers"]
    assert container["envFrom"] == [{"configMapRef": {"name": "settings"}}]
    assert "GREETING" not in environment(one(FULL, "StatefulSet", "-master"))


def test_workers_find_the_master_by_the_name_it_gives_itself() -> None:
    host = environment(one(FULL, "StatefulSet", "-master"))["SPARK_MASTER_HOST"]
    assert host == "departures-g3-master-0.departures-g3-master.flights.svc.k8s.example"
    assert environment(one(FULL, "StatefulSet", "-worker"))["SPARK_MASTER"] == f"spark://{host}:7077"
    assert one(FULL, "Service", "-master")["spec"]["publishNotReadyAddresses"]


def test_workers_start_when_the_master_answers() -> None:
    (container,) = one(FULL, "StatefulSet", "-worker")["spec"]["template"]["spec"]["containers"]
    _, options, script, host, port, _ = container["args"]
    assert host == environment(one(FULL, "StatefulSet", "-master"))["SPARK_MASTER_HOST"]
    assert int(port) in {item["port"] for item in one(FULL, "Service", "-master")["spec"]["ports"]}
    with socket.create_server(("127.0.0.1", 0)) as server:
        words = [sys.executable, options, script, "127.0.0.1", str(server.getsockname()[1]), "/bin/pwd"]
        assert subprocess.run(words, timeout=10, check=True, capture_output=True, cwd="/").stdout == b"/\n"


def test_probes_leave_the_rpc_port_alone() -> None:
    for name in ("-master", "-worker"):
        (container,) = one(FULL, "StatefulSet", name)["spec"]["template"]["spec"]["containers"]
        probes = [
            container[probe]["tcpSocket"]["port"] for probe in ("startupProbe", "readinessProbe", "livenessProbe")
        ]
        assert set(probes) == {"ui"}


def test_code_of_a_configmap_is_where_the_contract_says() -> None:
    (container,) = one(FULL, "StatefulSet", "-worker")["spec"]["template"]["spec"]["containers"]
    assert {"name": "code", "mountPath": CODE_DIR, "readOnly": True} in container["volumeMounts"]


def test_only_workers_have_a_disruption_budget() -> None:
    (budget,) = [item for item in FULL if item["kind"] == "PodDisruptionBudget"]
    assert budget["spec"]["maxUnavailable"] == 1
    assert budget["spec"]["selector"]["matchLabels"]["streaming.fencepost.dev/component"] == "worker"
