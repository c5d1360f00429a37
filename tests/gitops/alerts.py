"""The chart's alerts with durations of seconds: the expressions are the chart's own."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from harness.kubernetes.kubectl import Kubectl, Object
from harness.monitoring.alertmanager import Alertmanager, Receiver, alertmanager, receiver
from harness.monitoring.pod_targets import pod_jobs
from harness.monitoring.prometheus import ApiServer, Prometheus, operator_job, prometheus
from harness.waiting import eventually
from testbed.environment import Environment
from unit.charts.rendering import objects, one

LOOKBACK: Final = {"gap": "5s", "trend": "10s", "count": "5m", "stuck": "20s", "undelivered": "10s", "memory": "20s"}
LAG: Final = 10
_DURATION: Final = re.compile(r"\[\w+|> \d+")


def rules(values: dict[str, Any] | None = None) -> list[Object]:
    """Return the groups of the chart's PrometheusRule."""
    given = {"metrics.prometheusRule.enabled": True, "metrics.serviceMonitor.enabled": True, **(values or {})}
    found = one(objects("fencepost", values=given), "PrometheusRule", "fencepost")
    return list(found["spec"]["groups"])


def pod_monitor() -> Object:
    """Return the chart's PodMonitor."""
    return one(objects("fencepost", values={"metrics.podMonitor.enabled": True}), "PodMonitor", "fencepost-pipelines")


def quick_rules() -> list[Object]:
    """Return the same groups with waits of a second and short looks back. Raises AssertionError if more differs."""
    usual = rules()
    waits = {rule["alert"]: "1s" for group in usual for rule in group["rules"] if "for" in rule}
    values: dict[str, Any] = {
        f"metrics.prometheusRule.lookback.{name}": duration for name, duration in LOOKBACK.items()
    }
    quick = rules({**values, "metrics.prometheusRule.for": waits, "metrics.prometheusRule.lagRecords": LAG})
    assert _without_durations(quick) == _without_durations(usual)
    return quick


def _without_durations(groups: list[Object]) -> list[tuple[str, str]]:
    return [(rule["alert"], _DURATION.sub("", rule["expr"])) for group in groups for rule in group["rules"]]


@dataclass(frozen=True, slots=True)
class Monitoring:
    """Prometheus, Alertmanager and the receiver."""

    prometheus: Prometheus
    alertmanager: Alertmanager
    receiver: Receiver

    def wait_received(self, alert: str, status: str = "firing", *, seconds: float = 120, **labels: str) -> Object:
        """Wait until the receiver got an alert; return it."""

        def received() -> Object | None:
            found = self.receiver.received(alert, status, **labels)
            pending = [
                f"{one['labels']['alertname']} {one['labels'].get('name')} {one['state']}"
                for one in self.prometheus.alerts()
            ]
            assert found, f"Prometheus has {pending}; failing: {self.prometheus.failing_rules()}"
            return found

        return eventually(f"{alert} {labels} is {status}", received, seconds=seconds)


@contextmanager
def monitoring(
    environment: Environment, folder: Path, groups: list[Object], *, pods_of: Kubectl | None = None
) -> Iterator[Monitoring]:
    """Run all three over these rules; what is scraped is the operator, and the pods of pipelines in a namespace."""
    api = ApiServer.of(environment.kubeconfig, folder / "tls")
    with ExitStack() as stack:
        jobs = [operator_job(api)]
        if pods_of is not None:
            jobs += stack.enter_context(pod_jobs(api, pods_of, pod_monitor()))
        received = stack.enter_context(receiver())
        manager = stack.enter_context(alertmanager(environment, folder / "alertmanager", webhook=received.url))
        scraping = stack.enter_context(
            prometheus(environment, folder / "prometheus", jobs=jobs, groups=groups, alertmanager=manager.address)
        )
        yield Monitoring(scraping, manager, received)
