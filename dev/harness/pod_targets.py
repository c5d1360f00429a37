"""Pods as a PodMonitor finds them, told to Prometheus by HTTP: the testbed's is built without Kubernetes' discovery."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from http.server import BaseHTTPRequestHandler
from typing import Any, Final

from harness.kubectl import Kubectl, KubectlError, Object
from harness.prometheus import ApiServer
from harness.web_server import Quiet, serving

INTERVAL: Final = "2s"
"""Between two scrapes: a driver's JVM may keep one waiting for half a second."""
_META: Final = "__meta_kubernetes_pod_label_"


@contextmanager
def pod_jobs(api: ApiServer, kubectl: Kubectl, monitor: Object) -> Iterator[list[Object]]:
    """Yield the scrapes of a namespace's pods that a PodMonitor asks for, by way of the API server.

    `monitor` selects by labels.
    """
    spec = monitor["spec"]
    selector = ",".join(f"{name}={value}" for name, value in spec["selector"]["matchLabels"].items())

    class Handler(Quiet, BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            port, _, path = self.path.lstrip("/").partition("/")
            try:
                pods = kubectl.items("pods", f"--selector={selector}", "--field-selector=status.phase=Running")
            except KubectlError:  # Prometheus goes on with what it knows
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
        yield [_job(api, endpoint, f"http://127.0.0.1:{own}") for endpoint in spec["podMetricsEndpoints"]]


def _targets(api: ApiServer, pod: Object, port: str, path: str) -> Iterator[Object]:
    """Yield a target for each container port of this name."""
    name, namespace = pod["metadata"]["name"], pod["metadata"]["namespace"]
    labels = {
        f"{_META}{''.join(c if c.isalnum() else '_' for c in k)}": v for k, v in pod["metadata"]["labels"].items()
    }
    for container in pod["spec"]["containers"]:
        for found in container.get("ports", ()):
            if found.get("name") == port:
                at = f"/api/v1/namespaces/{namespace}/pods/{name}:{found['containerPort']}/proxy{path}"
                own = {"namespace": namespace, "pod": name, "__metrics_path__": at}
                yield {"targets": [api.address], "labels": {**labels, **own}}


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
