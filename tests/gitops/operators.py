"""A second operator in the testbed's cluster, by the chart, for one namespace of its own."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Final

from harness.helm import Helm
from harness.kubernetes.kubectl import Kubectl
from testbed.environment import Environment
from testbed.release import CHART, NAMESPACE, RELEASE
from testbed.services.kafka_and_cassandra import restricted_namespace

PATIENCE: Final = "--timeout=5m"


def own_values(environment: Environment, namespace: str) -> dict[str, str]:
    """Return the values of an operator for one namespace, of the image that the testbed's runs."""
    image = "{.spec.template.spec.containers[0].image}"
    testbeds = Kubectl.of(environment, NAMESPACE)
    found = testbeds.run("get", "deployment", RELEASE, f"--output=jsonpath={image}")
    repository, _, tag = found.rpartition(":")
    return {
        "image.repository": repository,
        "image.tag": tag,
        "image.pullPolicy": "Never",
        "replicas": "1",
        "fullnameOverride": namespace,
        "watchNamespaces": f"{{{namespace}}}",
        "scope": namespace,
        "crds.enabled": "false",
    }


def flags(values: Mapping[str, str]) -> tuple[str, ...]:
    """Return the values as Helm's flags."""
    return tuple(f"--set={name}={value}" for name, value in values.items())


@contextmanager
def own_namespace(environment: Environment, name: str) -> Iterator[Kubectl]:
    """Make a namespace as the testbed's operator has one, and delete it at the end."""
    kubectl = Kubectl.of(environment, name)
    kubectl.run("apply", "--filename=-", text=restricted_namespace(name))
    try:
        yield kubectl
    finally:
        kubectl.run("delete", "namespace", name, "--wait=false")


@contextmanager
def installed(environment: Environment, kubectl: Kubectl, values: Mapping[str, str]) -> Iterator[None]:
    """Install the chart with Helm, wait for its pod, and uninstall it at the end."""
    helm = Helm.of(environment, kubectl.namespace)
    given = {**own_values(environment, kubectl.namespace), "uninstallGuard": "false", **values}
    try:
        helm.run("install", kubectl.namespace, str(CHART), *flags(given), "--wait", PATIENCE)
        yield
    finally:
        helm.run("uninstall", kubectl.namespace, "--ignore-not-found")
