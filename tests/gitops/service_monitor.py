"""What the chart's ServiceMonitor means to Prometheus: a scrape as the Prometheus operator makes one of it."""

from __future__ import annotations

import base64
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import yaml

from gitops.operators import flags
from harness.helm import Helm
from harness.kubernetes.kubectl import Kubectl, Object
from harness.processes import free_port, running
from testbed.environment import Environment
from testbed.release import CHART

OWN_TOKEN: Final = "/var/run/secrets/kubernetes.io/serviceaccount/token"  # noqa: S105 - a path
"""Where a pod of Prometheus has the token of its ServiceAccount."""


@dataclass(frozen=True, slots=True)
class ServiceMonitor:
    """A ServiceMonitor of one endpoint, and kubectl for the namespace that it is in."""

    kubectl: Kubectl
    spec: Object

    @classmethod
    def rendered(cls, environment: Environment, kubectl: Kubectl, values: dict[str, str]) -> ServiceMonitor:
        """Return that of a release with these values: a cluster without the Prometheus operator does not keep it."""
        wanted = {**values, "metrics.serviceMonitor.enabled": "true"}
        words = (kubectl.namespace, str(CHART), *flags(wanted), "--show-only=templates/servicemonitor.yaml")
        found = yaml.safe_load(Helm.of(environment, kubectl.namespace).run("template", *words))
        return cls(kubectl, found["spec"])

    @property
    def service(self) -> str:
        """The name of the one Service that it selects."""
        assert self.spec["namespaceSelector"] == {"matchNames": [self.kubectl.namespace]}
        labels = ",".join(f"{name}={value}" for name, value in self.spec["selector"]["matchLabels"].items())
        (found,) = self.kubectl.items("services", f"--selector={labels}")
        return str(found["metadata"]["name"])

    @property
    def endpoint(self) -> Object:
        """Its one endpoint."""
        (found,) = self.spec["endpoints"]
        return dict(found)

    @contextmanager
    def reached(self, log: Path) -> Iterator[str]:
        """Forward a port of this machine to the Service's port that it names; yield host:port."""
        with forwarded(self.kubectl, f"service/{self.service}", self.endpoint["port"], log) as address:
            yield address

    def scrape(self, job: str, address: str, *, token: str, folder: Path) -> Object:
        """Return Prometheus' job of it. `token` is that of Prometheus' own ServiceAccount.

        Raises AssertionError for a setting that this does not know.
        """
        left = self.endpoint
        del left["port"]
        found: Object = {
            "job_name": job,
            "honor_labels": left.pop("honorLabels", False),
            "metrics_path": left.pop("path", "/metrics"),
            "scheme": left.pop("scheme", "http"),
            "scrape_interval": left.pop("interval"),
            "static_configs": [{"targets": [address]}],
        }
        folder.mkdir(parents=True, exist_ok=True)
        if tls := left.pop("tlsConfig", None):
            found["tls_config"] = self._tls(tls, folder)
        if place := left.pop("bearerTokenFile", None):
            assert place == OWN_TOKEN
            (folder / "token").write_text(token)
            found["authorization"] = {"type": "Bearer", "credentials_file": str(folder / "token")}
        if authorization := left.pop("authorization", None):
            credentials = self._of_secret(authorization["credentials"]).decode()
            found["authorization"] = {"type": authorization["type"], "credentials": credentials}
        assert not left
        return found

    def _tls(self, given: Object, folder: Path) -> Object:
        left, found = dict(given), Object()
        if left.pop("insecureSkipVerify", False):
            found["insecure_skip_verify"] = True
        if name := left.pop("serverName", None):
            found["server_name"] = name
        if authority := left.pop("ca", None):
            (folder / "ca.crt").write_bytes(self._of_secret(authority["secret"]))
            found["ca_file"] = str(folder / "ca.crt")
        assert not left
        return found

    def _of_secret(self, wanted: Object) -> bytes:
        """Return a key of a Secret in the ServiceMonitor's namespace, which is where the Prometheus operator looks."""
        secret = self.kubectl.get("secret", wanted["name"])
        assert secret is not None, wanted
        return base64.b64decode(secret["data"][wanted["key"]])


@contextmanager
def forwarded(kubectl: Kubectl, target: str, port: str, log: Path) -> Iterator[str]:
    """Forward a free port of this machine to a port of a pod or a Service, by its name; yield host:port."""
    address = f"127.0.0.1:{free_port()}"
    ports = f"{address.rpartition(':')[2]}:{port}"
    command = (*kubectl.command, f"--namespace={kubectl.namespace}", "port-forward", target, ports)
    with running(*command, log=log, ready=address):
        yield address
