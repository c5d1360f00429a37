"""A real Prometheus that scrapes the operator through the API server and evaluates the chart's own rules."""

from __future__ import annotations

import base64
import urllib.parse
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from harness.kubernetes.kubectl import Object
from harness.processes import ask, free_port, running
from testbed.environment import Environment
from testbed.release import NAMESPACE, RELEASE


@dataclass(frozen=True, slots=True)
class ApiServer:
    """The API server's address and a client certificate for it, as files."""

    address: str
    """host:port."""
    authority: Path
    certificate: Path
    key: Path

    @classmethod
    def of(cls, kubeconfig: Path, folder: Path) -> ApiServer:
        """Write the testbed's administrator's certificate to `folder`."""
        content = yaml.safe_load(kubeconfig.read_text())
        cluster, user = content["clusters"][0]["cluster"], content["users"][0]["user"]
        folder.mkdir(parents=True, exist_ok=True)
        files = {
            "ca.pem": cluster["certificate-authority-data"],
            "client.pem": user["client-certificate-data"],
            "client.key": user["client-key-data"],
        }
        for name, data in files.items():
            (folder / name).write_bytes(base64.b64decode(data))
            (folder / name).chmod(0o600)
        return cls(cluster["server"].removeprefix("https://"), *(folder / name for name in files))

    def client(self) -> Object:
        """Return the settings of a scrape that say who asks."""
        files = {"ca_file": self.authority, "cert_file": self.certificate, "key_file": self.key}
        return {"scheme": "https", "tls_config": {name: str(path) for name, path in files.items()}}


def operator_job(api: ApiServer) -> Object:
    """Return the scrape of the operator as its ServiceMonitor asks for it, by way of the API server.

    A port-forward would end with the operator's pod.
    """
    service = f"{RELEASE}-metrics"
    return {
        "job_name": service,
        "honor_labels": True,
        "metrics_path": f"/api/v1/namespaces/{NAMESPACE}/services/{service}:http/proxy/metrics",
        **api.client(),
        "static_configs": [{"targets": [api.address], "labels": {"namespace": NAMESPACE}}],
    }


@dataclass(frozen=True, slots=True)
class Prometheus:
    """Its HTTP API."""

    url: str

    def query(self, expression: str, *, at: float | None = None) -> list[Object]:
        """Return the samples of an instant query: `metric` and `value` each.

        `at` is in seconds since 1970, None for now.
        """
        words = {"query": expression} | ({} if at is None else {"time": str(at)})
        return list(ask(f"{self.url}/api/v1/query?{urllib.parse.urlencode(words)}")["data"]["result"])

    def alerts(self) -> list[Object]:
        """Return the alerts that are pending or firing."""
        return list(ask(f"{self.url}/api/v1/alerts")["data"]["alerts"])

    def failing_rules(self) -> list[str]:
        """Return each rule whose evaluation failed, with the error."""
        groups = ask(f"{self.url}/api/v1/rules")["data"]["groups"]
        rules = [rule for group in groups for rule in group["rules"]]
        return [f"{rule['name']}: {rule.get('lastError')}" for rule in rules if rule["health"] == "err"]


@contextmanager
def prometheus(
    environment: Environment,
    folder: Path,
    *,
    jobs: Sequence[Mapping[str, Any]] | None = None,
    groups: Sequence[Mapping[str, Any]] = (),
    alertmanager: str | None = None,
    interval: str = "1s",
) -> Iterator[Prometheus]:
    """Run Prometheus with the rules of `groups`; `alertmanager` is its host:port.

    Without `jobs` it scrapes the operator.
    """
    folder.mkdir(parents=True, exist_ok=True)
    if jobs is None:
        jobs = [operator_job(ApiServer.of(environment.kubeconfig, folder / "tls"))]
    settings: Object = {
        "global": {"scrape_interval": interval, "evaluation_interval": interval},
        "rule_files": ["rules.yaml"],
        "scrape_configs": list(jobs),
    }
    if alertmanager:
        settings["alerting"] = {"alertmanagers": [{"static_configs": [{"targets": [alertmanager]}]}]}
    (folder / "rules.yaml").write_text(yaml.safe_dump({"groups": list(groups)}))
    (folder / "prometheus.yaml").write_text(yaml.safe_dump(settings))
    address = f"127.0.0.1:{free_port()}"
    command = [
        str(environment.kubectl.parent / "prometheus"),
        f"--config.file={folder / 'prometheus.yaml'}",
        f"--storage.tsdb.path={folder / 'data'}",
        f"--web.listen-address={address}",
    ]
    with running(*command, log=folder / "prometheus.log", ready=f"http://{address}/-/ready"):
        yield Prometheus(f"http://{address}")
