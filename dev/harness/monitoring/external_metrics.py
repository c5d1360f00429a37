"""The external metrics API of a cluster, with values that a test sets: a web server of this machine, registered there.

The API server reaches it through a Service without a selector, so nothing of it runs in the cluster.
"""

from __future__ import annotations

import json
import ssl
import subprocess
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from datetime import UTC, datetime
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from typing import Any, Final

from harness.kubernetes.kubectl import Kubectl, Object
from harness.kubernetes.nodes import Nodes
from harness.waiting import eventually
from harness.web_server import Quiet, serving

GROUP: Final = "external.metrics.k8s.io"
VERSION: Final = "v1beta1"
_API_SERVICE: Final = f"{VERSION}.{GROUP}"
_NAME: Final = "external-metrics"
_ROOT: Final = f"/apis/{GROUP}/{VERSION}"
_RESOURCES: Final[Object] = {
    "kind": "APIResourceList",
    "apiVersion": "v1",
    "groupVersion": f"{GROUP}/{VERSION}",
    "resources": [],
}


@contextmanager
def external_metrics(kubectl: Kubectl, nodes: Nodes, node: str, folder: Path) -> Iterator[dict[str, int]]:
    """Serve the API at an address of this machine; yield the values by metric, which a test changes.

    The API server runs on `node`. The Service is in kubectl's namespace, and the certificate in `folder`. The API is
    gone afterwards: while one does not answer, no namespace can be deleted.
    """
    values: dict[str, int] = {}

    class Handler(Quiet, BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            answer = _answer(self.path.partition("?")[0], values)
            text = json.dumps(answer).encode()
            self.send_response(200 if answer else 404)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(text)))
            self.end_headers()
            self.wfile.write(text)

    host = nodes.host(node)
    with serving(Handler, host=host, tls=_certified(folder)) as port:
        kubectl.apply(*_service(host, port))
        # Registered earlier, the API server may connect before the node routes the Service's address.  What answers
        # there then is a gateway outside of the cluster, and the API server keeps that connection for each check.
        eventually(f"{node} reaches the Service", lambda: _is_reached(kubectl, nodes, node), seconds=60)
        try:
            kubectl.apply(_registration(kubectl.namespace))
            eventually(f"{_API_SERVICE} is available", lambda: _is_available(kubectl), seconds=60)
            yield values
        finally:
            kubectl.delete("apiservice", _API_SERVICE)


def _answer(path: str, values: Mapping[str, int]) -> Object:
    """Return what a path answers: the API's resources, or the value of the metric that its last word names."""
    if path.rstrip("/") == _ROOT:
        return _RESOURCES
    name = path.rpartition("/")[2]
    if not path.startswith(f"{_ROOT}/namespaces/") or name not in values:
        return {}
    now = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    item = {"metricName": name, "metricLabels": {}, "timestamp": now, "value": str(values[name])}
    return {"kind": "ExternalMetricValueList", "apiVersion": f"{GROUP}/{VERSION}", "metadata": {}, "items": [item]}


def _certified(folder: Path) -> ssl.SSLContext:
    key, certificate = folder / "key.pem", folder / "certificate.pem"
    made = ("-newkey", "rsa:2048", "-nodes", "-days", "1", "-subj", f"/CN={_NAME}")
    words = ["openssl", "req", "-x509", *made, "-keyout", str(key), "-out", str(certificate)]
    subprocess.run(words, check=True, capture_output=True, timeout=60)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate, key)
    return context


def _service(host: str, port: int) -> tuple[Object, ...]:
    ports = [{"name": "https", "port": 443, "protocol": "TCP"}]
    service: dict[str, Any] = {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {"name": _NAME},
        "spec": {"ports": [{**ports[0], "targetPort": port}]},
    }
    # Not an EndpointSlice: older API servers look for these, and for newer ones they are mirrored.
    endpoints = {
        "apiVersion": "v1",
        "kind": "Endpoints",
        "metadata": {"name": _NAME},
        "subsets": [{"addresses": [{"ip": host}], "ports": [{**ports[0], "port": port}]}],
    }
    return service, endpoints


def _registration(namespace: str) -> Object:
    return {
        "apiVersion": "apiregistration.k8s.io/v1",
        "kind": "APIService",
        "metadata": {"name": _API_SERVICE},
        "spec": {
            "group": GROUP,
            "version": VERSION,
            "groupPriorityMinimum": 100,
            "versionPriority": 100,
            "insecureSkipTLSVerify": True,
            "service": {"name": _NAME, "namespace": namespace, "port": 443},
        },
    }


def _is_reached(kubectl: Kubectl, nodes: Nodes, node: str) -> bool:
    address = kubectl.run("get", "service", _NAME, "--output=jsonpath={.spec.clusterIP}")
    words = ("curl", "--insecure", "--silent", "--max-time", "5", f"https://{address}{_ROOT}")
    answer = nodes.run(node, *words, check=False)
    assert answer == json.dumps(_RESOURCES), answer or "no answer"
    return True


def _is_available(kubectl: Kubectl) -> bool:
    found = json.loads(kubectl.run("get", "apiservice", _API_SERVICE, "--output=json"))
    conditions = found.get("status", {}).get("conditions", [])
    assert any(each["type"] == "Available" and each["status"] == "True" for each in conditions), conditions
    return True
