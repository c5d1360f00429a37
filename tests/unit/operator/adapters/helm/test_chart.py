"""The digest of the Spark cluster's chart: what it renders counts, how it is written does not."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest

from fencepost_operator.adapters.helm.chart import chart_digest
from fencepost_operator.adapters.helm.command import Helm
from fencepost_operator.api.spec.cluster import WorkerSpec
from fencepost_operator.errors import Rejected
from present import present
from testbed.home import Home

CHART = Path(__file__).parents[5] / "charts" / "spark-cluster"


@pytest.fixture
def chart(tmp_path: Path) -> Path:
    """A copy of the chart."""
    return shutil.copytree(CHART, tmp_path / "spark-cluster")


def helm(chart: Path) -> Helm:
    return Helm(binary=Home.of_user().bin / "helm", chart=chart, home=chart.parent / "home")


async def digest(chart: Path) -> str:
    return await chart_digest(helm(chart))


def edited(path: Path, change: Callable[[str], str]) -> None:
    before = path.read_text()
    path.write_text(change(before))
    assert path.read_text() != before


async def test_the_digest_of_the_chart_as_it_is() -> None:
    """Another one replaces, as planned restarts, every Spark cluster of a release that recorded this one.

    Say so in CHANGELOG.md, and expect the new digest here.
    """
    assert await digest(CHART) == "a5626127d46d"


async def test_comments_versions_and_new_values_do_not_count(chart: Path) -> None:
    before = await digest(chart)
    edited(chart / "templates" / "worker.yaml", lambda text: "{{- /* Workers. */}}\n" + text)
    edited(chart / "templates" / "worker.yaml", lambda text: text.replace("spec:\n", "spec:  # of it\n", 1))
    edited(chart / "Chart.yaml", lambda text: text.replace("version: 0.1.0", "version: 0.2.0"))
    later = "{{- with .Values.later }}\n      later: true\n{{- end }}\n"
    where = "      topologySpreadConstraints"
    edited(chart / "templates" / "worker.yaml", lambda text: text.replace(where, later + where))
    assert await digest(chart) == before


async def test_another_default_of_the_memory_is_not_another_chart(monkeypatch: pytest.MonkeyPatch) -> None:
    """What a spec says is hashed with the spec."""
    before = await digest(CHART)
    usual = present(WorkerSpec.__init__.__kwdefaults__)
    monkeypatch.setitem(usual, "memory", 2 * WorkerSpec().memory)
    assert await digest(CHART) == before


@pytest.mark.parametrize(
    ("file", "old", "new"),
    [
        ("_helpers.tpl", "terminationGracePeriodSeconds: 10", "terminationGracePeriodSeconds: 20"),
        ("worker.yaml", "value: /tmp/work", "value: /tmp/other"),
        ("worker.yaml", "checksum/code", "checksum/other"),
        ("master.yaml", "sizeLimit: 128Mi", "sizeLimit: 256Mi"),
        ("master.yaml", "port: 7077", "port: 7079"),
        ("worker.yaml", "maxUnavailable: 1", "maxUnavailable: 2"),
    ],
)
async def test_what_is_rendered_counts(chart: Path, file: str, old: str, new: str) -> None:
    before = await digest(chart)
    edited(chart / "templates" / file, lambda text: text.replace(old, new))
    assert await digest(chart) != before


@dataclass(frozen=True, slots=True, kw_only=True)
class Rendered(Helm):
    """A Helm that accepts whatever a chart renders."""

    text: str

    async def template(self, values: Mapping[str, Any], **_: str) -> str:  # noqa: ARG002
        return self.text


async def refused(helm: Helm) -> Rejected:
    with pytest.raises(Rejected) as caught:
        await chart_digest(helm)
    assert caught.value.remedy
    return caught.value


async def test_a_chart_that_cannot_be_rendered_is_refused(chart: Path) -> None:
    (chart / "templates" / "broken.yaml").write_text("{{ .Values.")
    await refused(helm(chart))
    await refused(helm(chart / "absent"))
    absent = await refused(replace(helm(chart), binary=Path("/absent")))
    assert absent.remedy == "set FENCEPOST_HELM to the helm binary"


@pytest.mark.parametrize(
    "text",
    [
        "apiVersion: v1\nmetadata: {name: x}",
        "kind: Secret\nmetadata: {name: x}",
        "apiVersion: v1\nkind: Secret",
        "apiVersion: v1\nkind: Secret\nmetadata: {labels: {}}",
        "apiVersion: v1\nkind: Secret\nmetadata: x",
        "apiVersion: v1\nkind: {a: b}\nmetadata: {name: x}",
        "apiVersion: v1\nkind: Secret\nmetadata: {name: [x]}",
        "apiVersion: v1\nkind: Secret\nmetadata: {name: x, labels: [app]}",
        "apiVersion: v1\nkind: Secret\nmetadata: {name: x, labels: app}",
        "apiVersion: v1\nkind: Secret\nmetadata: {name: x}\ndata: 1",
        "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: x}\ndata: {at: 2026-01-01}",
        "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: x}\ndata: {1: x, a: x}",
        "- kind: Secret",
        "text",
        "1",
        "kind: 'open",
    ],
)
async def test_a_chart_that_renders_another_thing_than_objects_is_refused(chart: Path, text: str) -> None:
    (chart / "templates" / "other.yaml").write_text(text)
    await refused(helm(chart))
    await refused(Rendered(binary=Path("helm"), chart=chart, text=text))


@pytest.mark.parametrize("text", ["", "---\n", "---\n# a comment\n---\n", "null"])
async def test_a_chart_that_renders_nothing_is_refused(chart: Path, text: str) -> None:
    for template in (chart / "templates").glob("*.yaml"):
        template.write_text(text)
    await refused(helm(chart))
    await refused(Rendered(binary=Path("helm"), chart=chart, text=text))
