"""What `helm install` says at its end: who receives pages, and a warning without a receiver."""

from __future__ import annotations

import json
import shutil
from base64 import b64encode
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from typing import Any, Final

import pytest
import yaml

from fencepost.contract.guidance.operations import APPLY_CRDS
from harness.web_server import Quiet, serving
from unit.charts.rendering import CHARTS, RELEASES, helm

NO_PIPELINE: Final = "WARNING: no page is sent when a pipeline stops."
NO_OPERATOR: Final = "WARNING: no alert is sent when the operator itself is down."
BY_OPERATOR: Final = "- the receivers in Secret receivers of namespace fencepost-system, by the operator itself"
BY_ALERTS: Final = "- the receivers in Alertmanager's routes for the alerts of PrometheusRule fencepost"
BY_NAMESPACE: Final = "- the receivers in Secret fencepost-pages of a pipeline's own namespace"
ALL: Final = (NO_PIPELINE, NO_OPERATOR, BY_OPERATOR, BY_ALERTS, BY_NAMESPACE)
PAGES: Final = {"pages.secretName": "receivers"}
HEARTBEAT: Final = {"pages.heartbeat.secretName": "switch"}
RULES: Final = {"metrics.prometheusRule.enabled": True}
ALERTS: Final = RULES | {"metrics.serviceMonitor.enabled": True}


KIND: Final = 'kind: Notes\nsaid: {{ include "notes" . | toJson }}\n'


@pytest.fixture(scope="module")
def chart(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The chart with its notes as an object: Helm prints them only where it installs."""
    folder = tmp_path_factory.mktemp("charts") / "fencepost"
    shutil.copytree(CHARTS / "fencepost", folder)
    text = (folder / "templates/NOTES.txt").read_text()
    (folder / "templates/_notes.tpl").write_text(f'{{{{ define "notes" }}}}{text}{{{{ end }}}}')
    (folder / "templates/notes.yaml").write_text(KIND)
    return folder


def notes(chart: Path, values: Mapping[str, Any], *kinds: str, options: Sequence[str] = ()) -> str:
    release, namespace = RELEASES["fencepost"]
    words = [f"--set-json={name}={json.dumps(value)}" for name, value in values.items()]
    words += [*(f"--api-versions={kind}" for kind in kinds), *options]
    text = helm("template", release, str(chart), f"--namespace={namespace}", "--show-only=templates/notes.yaml", *words)
    return str(yaml.safe_load(text)["said"])


@pytest.mark.parametrize(
    ("values", "said"),
    [
        ({}, {NO_PIPELINE, NO_OPERATOR}),
        ({"pages": None}, {NO_PIPELINE, NO_OPERATOR}),
        (PAGES, {BY_OPERATOR, BY_NAMESPACE, NO_OPERATOR}),
        (HEARTBEAT, {NO_PIPELINE}),
        (PAGES | HEARTBEAT, {BY_OPERATOR, BY_NAMESPACE}),
        (ALERTS, {BY_ALERTS, BY_NAMESPACE}),
        (RULES, {BY_ALERTS, BY_NAMESPACE, NO_OPERATOR}),
        (RULES | {"metrics.prometheusRule.job": "own"}, {BY_ALERTS, BY_NAMESPACE}),
        (PAGES | HEARTBEAT | ALERTS, {BY_OPERATOR, BY_ALERTS, BY_NAMESPACE}),
    ],
    ids=[
        "nothing",
        "values of an older chart",
        "pages",
        "heartbeat",
        "pages and heartbeat",
        "alerts",
        "alerts of metrics that are not scraped",
        "alerts of a job of one's own",
        "all",
    ],
)
def test_the_notes_name_the_receivers_of_pages_and_warn_without_one(
    chart: Path, values: Mapping[str, Any], said: set[str]
) -> None:
    found = notes(chart, values)
    assert {line for line in ALL if line in found} == said
    assert ("kubectl create secret generic fencepost-pages -n fencepost-system" in found) == (NO_PIPELINE in said)
    assert "does not install the CRDs" not in found


def test_the_notes_name_the_command_where_the_chart_does_not_install_the_crds(chart: Path) -> None:
    found = notes(chart, {"crds.enabled": False})
    assert f"  {APPLY_CRDS}\n" in found


def test_alerts_are_installed_where_the_cluster_knows_them(chart: Path) -> None:
    found = notes(chart, {}, "monitoring.coreos.com/v1/PrometheusRule", "monitoring.coreos.com/v1/ServiceMonitor")
    assert BY_ALERTS in found
    assert "WARNING" not in found


@contextmanager
def api_server(secrets: Mapping[str, Mapping[str, str]]) -> Iterator[str]:
    """Serve what Helm asks a cluster for to render with these Secrets in its namespace; yield the URL."""
    place = f"/api/v1/namespaces/{RELEASES['fencepost'][1]}/secrets"
    kind = {"name": "secrets", "singularName": "secret", "namespaced": True, "kind": "Secret", "verbs": ["get", "list"]}
    items: list[dict[str, Any]] = [
        {
            "apiVersion": "v1",
            "kind": "Secret",
            "metadata": {"name": name},
            "data": {key: b64encode(text.encode()).decode() for key, text in data.items()},
        }
        for name, data in secrets.items()
    ]
    answers: dict[str, Any] = {
        "/version": {"major": "1", "minor": "31", "gitVersion": "v1.31.0"},
        "/api": {"kind": "APIVersions", "versions": ["v1"]},
        "/apis": {"kind": "APIGroupList", "apiVersion": "v1", "groups": []},
        "/api/v1": {"kind": "APIResourceList", "groupVersion": "v1", "resources": [kind]},
        place: {"apiVersion": "v1", "kind": "SecretList", "metadata": {}, "items": items},
        **{f"{place}/{item['metadata']['name']}": item for item in items},
    }
    missing = {"kind": "Status", "apiVersion": "v1", "status": "Failure", "reason": "NotFound", "code": 404}

    class Handler(Quiet, BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            found = answers.get(self.path.partition("?")[0])
            text = json.dumps(missing if found is None else found).encode()
            self.send_response(404 if found is None else 200)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(text)))
            self.end_headers()
            self.wfile.write(text)

    with serving(Handler) as port:
        yield f"http://127.0.0.1:{port}"


@pytest.mark.parametrize(
    ("secrets", "said"),
    [
        ({}, "WARNING: the operator sends no pages: Secret receivers of namespace fencepost-system does not exist."),
        ({"other": {"apprise": "jsons://x"}}, "Secret receivers of namespace fencepost-system does not exist."),
        ({"receivers": {}}, "Secret receivers of namespace fencepost-system holds no receiver."),
        ({"receivers": {"apprise": "\n", "heartbeat": "https://x"}}, "fencepost-system holds no receiver."),
        ({"receivers": {"pagerduty": "0" * 32}}, ""),
    ],
    ids=["no Secret", "another Secret", "empty", "blank", "a receiver"],
)
def test_an_install_warns_while_the_named_secret_holds_no_receiver(
    chart: Path, secrets: Mapping[str, Mapping[str, str]], said: str
) -> None:
    with api_server(secrets) as url:
        options = ("--dry-run=server", f"--kube-apiserver={url}", "--kube-token=none")
        found = notes(chart, PAGES | HEARTBEAT, options=options)
    assert ("WARNING" in found) == bool(said)
    assert said in found
    assert ("kubectl create secret generic receivers -n fencepost-system" in found) == bool(said)
