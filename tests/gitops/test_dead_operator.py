"""A dead operator is noticed from outside, in the two ways that docs/pages.md names, with the settings that it gives.

What a dead man's switch does is left to say: it sends an alert when it was not called for its timeout.
"""

from __future__ import annotations

import re
import time
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import pairwise
from pathlib import Path
from typing import Any, Final

import pytest
import yaml

from gitops.alerts import rules
from harness.faults.cluster_faults import Faults
from harness.kubernetes.kubectl import Kubectl
from harness.kubernetes.nodes import Nodes
from harness.monitoring.alertmanager import alertmanager
from harness.monitoring.page_receivers import Hooks, hooks
from harness.monitoring.prometheus import prometheus
from harness.waiting import eventually
from present import present
from testbed.cluster import WORKERS
from testbed.environment import Environment
from testbed.images.built_images import REPOSITORY
from testbed.release import NAMESPACE, RELEASE

pytestmark = [pytest.mark.e2e, pytest.mark.long, pytest.mark.timeout(900)]

BEAT: Final = "/beat/4b3f"
WATCHDOG: Final = "/watchdog/9c1a"
SECRET: Final = "heartbeat-of-a-test"  # noqa: S105 - an object's name
SWITCHES: Final = {BEAT: 40.0, WATCHDOG: 30.0}
"""Seconds without a call after which each sends an alert: period and grace of 20 s, and a timeout of 30 s."""
PROMISE: Final = 60.0
"""Seconds after which a dead operator is reported."""
SCRAPES: Final = "15s"
"""The chart's default."""


@pytest.fixture(scope="module")
def nodes(environment: Environment) -> Nodes:
    return Nodes.of(environment)


@pytest.fixture(scope="module")
def operator(environment: Environment) -> Kubectl:
    return Kubectl.of(environment, NAMESPACE)


@pytest.fixture(scope="module")
def hub(nodes: Nodes) -> Iterator[Hooks]:
    """What both dead man's switches get, where pods reach it."""
    with hooks(nodes.host(WORKERS[0])) as found:
        yield found


def as_documented(switch: str) -> dict[str, Any]:
    """Return Alertmanager's settings of docs/pages.md, with the switch's URL, and a receiver for all other alerts."""
    text = (REPOSITORY / "docs" / "pages.md").read_text()
    (block,) = [each for each in re.findall(r"```yaml\n(.*?)```", text, re.DOTALL) if "dead-mans-switch" in each]
    found: dict[str, Any] = yaml.safe_load(re.sub(r"https://hc-ping.com/\w+", switch, block))
    found["route"]["receiver"] = "others"
    found["receivers"].append({"name": "others"})
    return found


@contextmanager
def beating(operator: Kubectl, faults: Faults, url: str) -> Iterator[None]:
    """Give the operator a heartbeat, as `pages.heartbeat.secretName` of the chart does, and take it away again."""
    name = "FENCEPOST_HEARTBEAT_SECRET"
    operator.apply(
        {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": SECRET}, "stringData": {"heartbeat": url}}
    )
    found = present(operator.get("deployment", RELEASE))
    before = {each["name"]: each.get("value", "") for each in found["spec"]["template"]["spec"]["containers"][0]["env"]}
    try:
        operator.run("set", "env", f"deployment/{RELEASE}", f"{name}={SECRET}")
        faults.operator_ready()
        yield
    finally:
        operator.run("set", "env", f"deployment/{RELEASE}", f"{name}={before[name]}")
        faults.operator_ready()
        operator.delete("secret", SECRET)


def last(hub: Hooks, path: str) -> float:
    """When a switch was called last."""
    return max((at for at, _ in hub.arrivals(path)), default=0.0)


def longest_silence(hub: Hooks, path: str) -> float:
    """The longest time between two calls of a switch, in seconds."""
    moments = [at for at, _ in hub.arrivals(path)]
    return max(after - before for before, after in pairwise(moments))


def telling(hub: Hooks, since: float) -> set[str]:
    """Return the switches that report now what began `since` then."""
    return {path for path, timeout in SWITCHES.items() if time.time() - max(since, last(hub, path)) > timeout}


def test_a_dead_operator_and_a_frozen_one_are_reported_by_the_switches(
    environment: Environment, nodes: Nodes, operator: Kubectl, hub: Hooks, tmp_path: Path, record_property: Any
) -> None:
    """Its Deployment is scaled to zero: calls end, an alert is sent, and calls come again with the operator.

    Then its processes are stopped by SIGSTOP: it is there, and does nothing. The kubelet restarts it later than that.
    """
    faults = Faults(kubectl=operator, nodes=nodes)
    place = f"http://{nodes.host(WORKERS[0])}:{hub.port}"
    with (
        beating(operator, faults, f"{place}{BEAT}"),
        alertmanager(environment, tmp_path / "am", settings=as_documented(f"{place}{WATCHDOG}")) as manager,
        prometheus(
            environment, tmp_path / "prometheus", groups=rules(), alertmanager=manager.address, interval=SCRAPES
        ),
    ):

        def called(path: str, since: float) -> None:
            def again() -> bool:
                return sum(at > since for at, _ in hub.arrivals(path)) > 3

            eventually(f"{path} is called again and again", again, seconds=240)

        for path in SWITCHES:
            called(path, 0.0)
            silence = round(longest_silence(hub, path), 1)
            record_property(f"longest silence of {path} in seconds", silence)
            print(f"{path}: called every {silence} s at least, and reports after {SWITCHES[path]:.0f} s")
        assert not hub.got(f"{BEAT}/fail")
        assert all(alert["labels"]["alertname"] == "FencepostWatchdog" for alert in received(hub))

        died = time.time()
        operator.run("scale", f"deployment/{RELEASE}", "--replicas=0")
        try:
            for path, timeout in SWITCHES.items():

                def reports(path: str = path) -> bool:
                    return path in telling(hub, died)

                eventually(f"the switch {path} reports", reports, seconds=300)
                seconds = round(last(hub, path) + timeout - died, 1)
                record_property(f"seconds until {path} reports", seconds)
                print(f"{path}: reported {seconds} s after the operator's end")
        finally:
            operator.run("scale", f"deployment/{RELEASE}", "--replicas=1")
            back = time.time()
            faults.operator_ready()
        for path in SWITCHES:
            called(path, back)

        pod = eventually("the operator runs", faults.operator_pod, seconds=60)
        with faults.frozen(pod):
            froze = time.time()
            switches = eventually("a switch reports", lambda: telling(hub, froze), seconds=PROMISE)
            seconds = round(time.time() - froze, 1)
            record_property("seconds until a switch reports a frozen operator", seconds)
            print(f"{', '.join(sorted(switches))}: reported {seconds} s after the operator froze")
        awake = time.time()
        faults.operator_ready()
        for path in SWITCHES:
            called(path, awake)


def received(hub: Hooks) -> list[dict[str, Any]]:
    """Return the alerts that the watchdog's switch got."""
    return [alert for post in hub.got(WATCHDOG) for alert in post["alerts"]]
