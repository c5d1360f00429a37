"""Pods as a PodMonitor finds them, served to Prometheus by HTTP: the testbed's build has no discovery of Kubernetes."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler
from typing import Any, Final

from harness.kubernetes.kubectl import Kubectl, KubectlError, Object
from harness.monitoring.prometheus import ApiServer
from harness.web_server import Quiet, serving

INTERVAL: Final = "2s"
"""Between two scrapes: a driver's JVM may keep one waiting for half a second."""
_META: Final = "__meta_kubernetes_pod_label_"


@contextmanager
def pod_jobs(api: ApiServer, kubectl: Kubectl, monitor: Object) -> Iterator[list[Object]]:
    """Yield the scrapes of a namespace's pods that a PodMonitor asks for, by way of the API server.

    `monitor` selects by labels.
    """

    class Handler(Quiet, BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            port, _, path = self.path.lstrip("/").partition("/")
            try:
                pods = _pods(kubectl, monitor)
            except KubectlError:  # Prometheus keeps the last targets
                self.send_error(503)
                return
            body = json.dumps([found for pod in pods for found in _targets(api, pod, port, f"/{path}")]).encode()
            self.send_response(200)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            with suppress(ConnectionError):  # Prometheus waits no longer than until its next question
                self.wfile.write(body)

    with serving(Handler) as own:
        endpoints = monitor["spec"]["podMetricsEndpoints"]
        yield [_job(api, endpoint, f"http://127.0.0.1:{own}") for endpoint in endpoints]


@dataclass(frozen=True, slots=True)
class PodScrape:
    """One scrape of a pod: its path at the API server, the labels that its series get, and the names that are kept."""

    path: str
    labels: Mapping[str, str]
    names: re.Pattern[str]


def pod_scrapes(kubectl: Kubectl, monitor: Object) -> Iterator[PodScrape]:
    """Yield each scrape that the PodMonitor asks for now, for who scrapes without a Prometheus."""
    for pod in _pods(kubectl, monitor):
        for endpoint in monitor["spec"]["podMetricsEndpoints"]:
            (keep,) = endpoint["metricRelabelings"]
            assert (keep["sourceLabels"], keep["action"]) == (["__name__"], "keep")
            for address in _addresses(pod, endpoint["port"], endpoint["path"]):
                labels = _labels(pod)
                for rule in endpoint["relabelings"]:
                    (source,) = rule["sourceLabels"]
                    labels[rule["targetLabel"]] = labels.get(source, "")
                shown = {name: value for name, value in labels.items() if value and not name.startswith("__")}
                yield PodScrape(address, shown, re.compile(keep["regex"]))


def _pods(kubectl: Kubectl, monitor: Object) -> list[Object]:
    """Return the pods that run and that the PodMonitor selects."""
    labels = monitor["spec"]["selector"]["matchLabels"]
    selector = ",".join(f"{name}={value}" for name, value in labels.items())
    return kubectl.items("pods", f"--selector={selector}", "--field-selector=status.phase=Running")


def _targets(api: ApiServer, pod: Object, port: str, path: str) -> Iterator[Object]:
    """Yield a target for each container port of this name."""
    for address in _addresses(pod, port, path):
        yield {"targets": [api.address], "labels": {**_labels(pod), "__metrics_path__": address}}


def _labels(pod: Object) -> dict[str, str]:
    """Return the labels of a pod's target before they are relabelled."""
    metadata = pod["metadata"]
    found = {f"{_META}{''.join(c if c.isalnum() else '_' for c in k)}": v for k, v in metadata["labels"].items()}
    return {**found, "namespace": metadata["namespace"], "pod": metadata["name"]}


def _addresses(pod: Object, port: str, path: str) -> Iterator[str]:
    """Yield the path at the API server for each container port of this name."""
    name, namespace = pod["metadata"]["name"], pod["metadata"]["namespace"]
    for container in pod["spec"]["containers"]:
        for found in container.get("ports", ()):
            if found.get("name") == port:
                yield f"/api/v1/namespaces/{namespace}/pods/{name}:{found['containerPort']}/proxy{path}"


def _job(api: ApiServer, endpoint: Mapping[str, Any], url: str) -> Object:
    return {
        "job_name": f"pods/{endpoint['port']}",
        "scrape_interval": INTERVAL,
        **api.client(),
        "http_sd_configs": [{"url": f"{url}/{endpoint['port']}{endpoint['path']}", "refresh_interval": "5s"}],
        "relabel_configs": [_relabeling(given) for given in endpoint["relabelings"]],
        "metric_relabel_configs": [_relabeling(given) for given in endpoint["metricRelabelings"]],
    }


def _relabeling(given: Mapping[str, Any]) -> Object:
    """Return Prometheus' own words for a relabeling of a PodMonitor."""
    words = {"sourceLabels": "source_labels", "targetLabel": "target_label"}
    return {words.get(name, name): value for name, value in given.items()}
