"""What each alert says over time, by promtool's unit tests: one file of alerts/ per alert of the chart."""

import re
from pathlib import Path
from typing import Any, Final

import pytest
import yaml

from unit.charts.promtool import PROMTOOLS, promtool, without_annotations
from unit.charts.rendering import objects, one

MONITORING: Final = ("ServiceMonitor", "PrometheusRule")
GROUPS = one(objects("fencepost", "full"), "PrometheusRule", "fencepost")["spec"]["groups"]
RULES: Final[dict[str, dict[str, Any]]] = {rule["alert"]: rule for group in GROUPS for rule in group["rules"]}
TESTS: Final = {path.stem: yaml.safe_load(path.read_text()) for path in Path(__file__).with_name("alerts").glob("*")}
OF_PIPELINES: Final = re.compile(
    r"(max|min|sum) by \(namespace, name(, reason)?\) "
    r"\(((last|min|max)_over_time\()?(sum without \(reason\) \()?fencepost_pipeline_\w+"
    r"(\{[^}]*\}\[\w+:\]\) - min_over_time\(fencepost_pipeline_\w+)?"
)


def test_each_alert_has_its_test_and_is_seen_to_fire_and_not_to_fire() -> None:
    assert TESTS.keys() == RULES.keys()
    for alert, tests in TESTS.items():
        asked = [asked for test in tests for asked in test["alert_rule_test"]]
        assert {each["alertname"] for each in asked} == {alert}
        assert {bool(each.get("exp_alerts")) for each in asked} == {True, False}, alert


@pytest.mark.parametrize("program", PROMTOOLS)
def test_the_rules_do_over_time_what_their_tests_say(program: str, tmp_path: Path) -> None:
    """One run of promtool, which names the alert, the moment and what it found instead; each alert has a file.

    promtool evaluates all the rules of a file at each moment of its tests.
    """
    for alert, tests in TESTS.items():
        alone = {"name": alert, "rules": [RULES[alert]]}
        (tmp_path / f"rule-{alert}.yaml").write_text(yaml.safe_dump(without_annotations([alone])))
        named = [{**test, "name": f"{alert}: {test['name']}"} for test in tests]
        suite = {"rule_files": [f"rule-{alert}.yaml"], "evaluation_interval": "15s", "tests": named}
        (tmp_path / f"{alert}.yaml").write_text(yaml.safe_dump(suite))
    promtool(program, "test", "rules", *(f"{alert}.yaml" for alert in sorted(TESTS)), folder=tmp_path)


@pytest.mark.parametrize("program", PROMTOOLS)
@pytest.mark.parametrize(
    "lookback", [{}, {"gap": "5s", "trend": "10s", "count": "1h", "stuck": "20s", "undelivered": "1m"}]
)
def test_prometheus_accepts_the_rules(program: str, lookback: dict[str, str], tmp_path: Path) -> None:
    values = {f"metrics.prometheusRule.lookback.{name}": value for name, value in lookback.items()}
    rules = one(objects("fencepost", "full", values), "PrometheusRule", "fencepost")["spec"]
    (tmp_path / "rules.yaml").write_text(yaml.safe_dump(rules))
    promtool(program, "check", "rules", "--lint=all", "--lint-fatal", "rules.yaml", folder=tmp_path)


@pytest.mark.parametrize("rule", RULES.values(), ids=RULES.keys())
def test_no_alert_of_a_pipeline_is_of_one_pod_of_the_operator(rule: dict[str, str]) -> None:
    """With its labels, the alert of a pipeline begins over when another replica acts."""
    assert "fencepost_pipeline_" not in OF_PIPELINES.sub("", rule["expr"])


@pytest.mark.parametrize("rule", RULES.values(), ids=RULES.keys())
def test_an_alert_is_of_what_the_chart_has_scraped(rule: dict[str, str]) -> None:
    """Whoever runs a pod that Prometheus scrapes can serve series of these names: they would page, or hide a page."""
    selectors = re.findall(r"\b(?:fencepost|jvm)_\w+(?:\{[^}]*\})?", rule["expr"])
    jobs = {re.search(r'job="([^"]+)"', each)[1] if "job=" in each else each for each in selectors}  # type: ignore[index]
    assert jobs <= {"fencepost-metrics", "fencepost-system/fencepost-pipelines"}


def test_without_a_job_of_the_chart_the_alerts_are_of_all() -> None:
    values = {"metrics.prometheusRule.enabled": True, "metrics.serviceMonitor.enabled": False}
    groups = one(objects("fencepost", values=values), "PrometheusRule", "fencepost")["spec"]["groups"]
    assert not [rule["alert"] for group in groups for rule in group["rules"] if "job=" in rule["expr"]]


def test_the_prometheus_operators_kinds_are_installed_where_the_cluster_knows_them() -> None:
    assert not [item for item in objects("fencepost") if item["kind"] in MONITORING]
    known = [f"--api-versions=monitoring.coreos.com/v1/{kind}" for kind in MONITORING]
    found = objects("fencepost", options=known)
    assert {item["kind"] for item in found} > set(MONITORING)
    off = {"metrics.serviceMonitor.enabled": False, "metrics.prometheusRule.enabled": False}
    assert not [item for item in objects("fencepost", values=off, options=known) if item["kind"] in MONITORING]


@pytest.mark.parametrize(
    ("values", "job"),
    [
        ({"serviceMonitor.enabled": True}, "fencepost-metrics"),
        ({"serviceMonitor.enabled": False}, None),
        ({"serviceMonitor.enabled": False, "prometheusRule.job": "pods"}, "pods"),
        ({"serviceMonitor.enabled": True, "prometheusRule.job": "pods"}, "pods"),
    ],
    ids=["ServiceMonitor", "not scraped", "another job", "both"],
)
def test_only_a_job_that_scrapes_the_operator_can_say_that_it_is_down(values: dict[str, Any], job: str | None) -> None:
    """Without one, the alert would fire from the installation on."""
    given = {f"metrics.{name}": value for name, value in {"prometheusRule.enabled": True, **values}.items()}
    groups = one(objects("fencepost", values=given), "PrometheusRule", "fencepost")["spec"]["groups"]
    down = [rule for group in groups for rule in group["rules"] if rule["alert"] == "FencepostOperatorDown"]
    assert [re.findall(r'job="([^"]*)"', rule["expr"]) for rule in down] == ([[job]] if job else [])


def test_each_alert_can_be_given_another_duration() -> None:
    waits = {alert: rule["for"] for alert, rule in RULES.items() if "for" in rule}
    values = {"metrics.prometheusRule.for": dict.fromkeys(waits, "7s")}
    groups = one(objects("fencepost", "full", values), "PrometheusRule", "fencepost")["spec"]["groups"]
    changed = {rule["alert"]: rule.get("for") for group in groups for rule in group["rules"]}
    assert changed == {alert: "7s" if alert in waits else None for alert in RULES}
