"""What `helm install` says at its end: who is told when something needs a person, and a warning while nobody is."""

from __future__ import annotations

import json
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import pytest
import yaml

from unit.charts.rendering import CHARTS, RELEASES, helm

NO_PIPELINE: Final = "WARNING: nobody is told when a pipeline stops."
NO_OPERATOR: Final = "WARNING: nobody is told when the operator itself is dead."
BY_OPERATOR: Final = "- the receivers in Secret receivers of namespace fencepost-system, by the operator itself"
BY_ALERTS: Final = "- whom Alertmanager routes the alerts of PrometheusRule fencepost to"
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


def notes(chart: Path, values: Mapping[str, Any], *kinds: str) -> str:
    release, namespace = RELEASES["fencepost"]
    words = [f"--set-json={name}={json.dumps(value)}" for name, value in values.items()]
    words += [f"--api-versions={kind}" for kind in kinds]
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
        "alerts that nobody scrapes for",
        "alerts of a job of one's own",
        "all",
    ],
)
def test_the_notes_say_who_is_told_and_warn_while_nobody_is(
    chart: Path, values: Mapping[str, Any], said: set[str]
) -> None:
    found = notes(chart, values)
    assert {line for line in ALL if line in found} == said
    assert ("kubectl create secret generic fencepost-pages -n fencepost-system" in found) == (NO_PIPELINE in said)
    assert "Before `helm upgrade`, bring it up to date, or nobody is paged" in found


def test_alerts_are_installed_where_the_cluster_knows_them(chart: Path) -> None:
    found = notes(chart, {}, "monitoring.coreos.com/v1/PrometheusRule", "monitoring.coreos.com/v1/ServiceMonitor")
    assert BY_ALERTS in found
    assert "WARNING" not in found
