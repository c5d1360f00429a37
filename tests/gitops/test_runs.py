"""What needs Spark, or minutes: four hours of normal life, which raise no alert, and faults of runs, which do."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import pytest
import yaml
from confluent_kafka import Producer

from e2e.stream import Stream, create_table
from flights.topics import Topics
from gitops.alerts import Monitoring, monitoring, pod_monitor, quick_rules, rules
from gitops.dashboards import figures, queries
from gitops.memory import IN_DRIVER, IN_EXECUTOR, leaking_code, of_leaking, operator_full, share, shares
from gitops.normal_life import Moment, Recording, of_operator, of_pod
from gitops.runbooks import read
from harness.faults.cluster_faults import Faults
from harness.kubernetes.kubectl import Kubectl, KubectlError
from harness.kubernetes.nodes import Nodes
from harness.load import PARTITIONS, Load
from harness.monitoring.pod_targets import pod_scrapes
from harness.pipelines import KIND, Pipeline, Place
from harness.topics import open_transaction
from harness.waiting import eventually
from testbed.release import NAMESPACE, RELEASE
from unit.charts.promtool import promtool, without_annotations

pytestmark = [pytest.mark.e2e, pytest.mark.long, pytest.mark.timeout(1500)]

EXPECTED: Final = {"FencepostDurabilityAtRisk", "FencepostWatchdog"}
"""The testbed has one Kafka broker and one node of Cassandra: that alert is right there. The watchdog always fires."""
MOST_KILLS: Final = 12
"""Four in `lookback.count` are a loop; on a busy machine the first ones are out of sight before the fourth."""
DRAINS: Final = 4
"""As many failures within half an hour are a loop."""
OF_FAULTS: Final = {"fleet: Restarts by reason", "pipeline: Time to data loss"}
"""Panels that are empty while nothing failed, and where Kafka deletes nothing, as the testbed's."""
MORE_PARTITIONS: Final = 2 * PARTITIONS
_METRICS: Final = f"/api/v1/namespaces/{NAMESPACE}/services/{RELEASE}-metrics:http/proxy/metrics"


@pytest.fixture(scope="module")
def stream(place: Place, kubectl: Kubectl) -> Iterator[Stream]:
    """A pipeline of its own, and the load of its topic."""
    name, bootstrap = "living", place.environment.kafka_host
    topic = f"{place.namespace}-{name}"
    loaded = Load.to(bootstrap, topic)
    create_table(place, name)
    spec: dict[str, Any] = {"suspend": False, "source": {"kafka": {"maxRecordsPerBatch": 4000}}}
    made = Stream(place=place, pipeline=Pipeline(kubectl, name), load=loaded, table=name, spec=spec)
    yield made
    made.pipeline.delete()
    Topics(bootstrap).delete(topic)


@pytest.fixture
def recording(kubectl: Kubectl) -> Recording:
    """Scrapes of the operator, of this module's pipelines alone, and of their pods as the PodMonitor has them."""
    monitor = pod_monitor()

    def answered(path: str) -> str:
        with contextlib.suppress(KubectlError):
            return kubectl.run("get", "--raw", path, seconds=10)
        return ""

    def scrape() -> Moment:
        found = dict(of_operator(answered(_METRICS), lambda labels: labels.get("namespace") == kubectl.namespace))
        with contextlib.suppress(KubectlError):
            for one in pod_scrapes(kubectl, monitor):
                found |= of_pod(answered(one.path), one)
        return found

    return Recording(scrape)


def test_four_hours_of_normal_life_raise_no_alert(
    stream: Stream, recording: Recording, kubectl: Kubectl, tmp_path: Path
) -> None:
    """A first start, load, an idle topic, a deploy, a scale, more partitions, drains, another operator, a suspend."""
    pipeline, faults = stream.pipeline, Faults(kubectl=kubectl, nodes=Nodes.of(stream.place.environment))
    paged: set[str] = set()
    with recording.live():
        stream.apply()
        pipeline.wait_ready()
    with recording.live(), stream.load.flowing():
        stream.commits_past(stream.commits_past(stream.fence()))
    recording.stretch(45)
    with recording.live(), stream.load.flowing():  # another spec, under load
        epoch = pipeline.epoch()
        stream.apply(job={"env": [{"name": "RELEASE", "value": "2"}]})
        pipeline.wait_ready(epoch=epoch + 1)
        stream.commits_past(stream.fence())
    recording.stretch(30)
    with recording.live(), stream.load.flowing():
        kubectl.run("scale", f"{KIND}/{pipeline.name}", "--replicas=2")
        pipeline.wait_ready()
        stream.commits_past(stream.fence())
    recording.stretch(15)
    with recording.live():
        rebalance(stream)
    recording.stretch(30)
    with recording.live(), stream.load.flowing():  # one node after another, as in the upgrade of a cluster
        for _ in range(DRAINS):
            epoch = pipeline.epoch()
            faults.evict(pipeline.driver()["metadata"]["name"])
            pipeline.wait_ready(epoch=epoch + 1)
            stream.commits_past(stream.fence())
            paged |= incidents(pipeline)
    recording.stretch(5)
    with recording.live(), stream.load.flowing():
        kubectl.within(NAMESPACE).run("rollout", "restart", f"deployment/{RELEASE}")
        kubectl.within(NAMESPACE).run("rollout", "status", f"deployment/{RELEASE}", "--timeout=120s", seconds=130)
        faults.operator_ready()
        stream.commits_past(stream.fence())
    paged |= incidents(pipeline)
    recording.stretch(55)
    with recording.live():
        pipeline.patch({"suspend": True})
        pipeline.wait_condition("Ready", "True", reason="Suspended")
        stream.load.burst(20_000)  # more than lagRecords, and no driver reads them
        paged |= incidents(pipeline)
    recording.stretch(60)
    with recording.live():
        pipeline.patch({"suspend": False})
        pipeline.wait_ready()
        stream.check_every_row()
    recording.stretch(20)
    assert paged | incidents(pipeline) <= {"DurabilityAtRisk"}, "a page was sent"
    check_quiet(recording, tmp_path)


def rebalance(stream: Stream) -> None:
    """Add partitions under load, and wait until records of each one are committed."""
    with stream.load.flowing():
        Topics(stream.load.bootstrap).grow(stream.load.ledger.topic, MORE_PARTITIONS)
        stream.commits_past(stream.fence())

    def committed() -> bool:
        row = stream.fence()
        assert row is not None, "no fence row"
        moved = [key for key, offset in row.offsets.items() if offset]
        assert len(moved) == MORE_PARTITIONS, f"committed: {moved}"
        return True

    with stream.load.flowing():  # a new producer knows the new ones
        eventually(f"{stream.pipeline.name} commits of {MORE_PARTITIONS} partitions", committed, seconds=150)


def check_quiet(recording: Recording, folder: Path) -> None:
    """Check that the chart's rules fire at no time of four hours, but for what is right on the testbed."""
    groups = rules()
    alerts = {rule["alert"]: rule for group in groups for rule in group["rules"] if rule["alert"] not in EXPECTED}
    (folder / "rules.yaml").write_text(yaml.safe_dump(without_annotations(groups)))
    suite = {"rule_files": ["rules.yaml"], "evaluation_interval": "15s", "tests": [recording.quiet(alerts)]}
    (folder / "tests.yaml").write_text(yaml.safe_dump(suite))
    hours = len(recording.moments) * 15 / 3600
    assert hours >= 4, f"{hours:.1f} hours"
    assert not recording.missing(alerts), "quiet because nothing was recorded"
    promtool("promtool", "test", "rules", "tests.yaml", folder=folder)


def incidents(pipeline: Pipeline) -> set[str]:
    """Return the reasons that the pipeline pages for, or has paged for lately."""
    return {page["reason"] for page in pipeline.status().get("pages", [])}


@pytest.fixture(scope="module")
def monitor(place: Place, kubectl: Kubectl, folder: Path) -> Iterator[Monitoring]:
    with monitoring(place.environment, folder, quick_rules(), pods_of=kubectl) as running:
        yield running


def test_each_query_of_the_dashboards_has_figures_of_a_pipeline_at_work(
    monitor: Monitoring, stream: Stream, kubectl: Kubectl
) -> None:
    """It is scaled meanwhile: what Helm takes is a figure of a change."""
    asked = list(queries(kubectl.namespace, stream.pipeline.name, interval="5m"))

    def all_answer() -> bool:
        empty = {place for place, query in asked if not figures(monitor.prometheus, query)}
        assert empty <= OF_FAULTS, f"without figures: {sorted(empty - OF_FAULTS)}"
        return True

    with stream.load.flowing():
        stream.apply()
        stream.pipeline.wait_ready()
        kubectl.run("scale", f"{KIND}/{stream.pipeline.name}", "--replicas=2")
        eventually("each query has figures", all_answer, seconds=180)


def test_memory_that_runs_out_is_reported(
    monitor: Monitoring, stream: Stream, kubectl: Kubectl, record_property: Any
) -> None:
    """Python of the workers and then of the driver, until the kernel is about to kill it; full heaps; corrections."""
    pipeline, environment = stream.pipeline, stream.place.environment
    labels: dict[str, Any] = {"namespace": kubectl.namespace, "name": pipeline.name}
    kubectl.apply(leaking_code())
    with stream.load.flowing():
        stream.apply(job=of_leaking("corrected"))
        pipeline.wait_ready()
        stream.commits_past(stream.commits_past(stream.fence()))
        for words, found in shares(monitor).items():
            record_property(words, found)
            print(f"{words}: {found}")
        restarts = pipeline.restarts()
        stream.apply(job=of_leaking("growing"))
        monitor.wait_received("FencepostWorkerMemory", seconds=300, **labels)
        assert pipeline.restarts() == restarts, "the kernel was faster"
        read(environment, "FencepostWorkerMemory", pipeline, monitor.prometheus)
        stream.apply(job=of_leaking("collecting"))
        monitor.wait_received("FencepostWorkerMemory", "resolved", seconds=300, **labels)
        firing = monitor.wait_received("FencepostDriverMemory", seconds=300, **labels)
        assert firing["labels"]["pod"] == pipeline.driver()["metadata"]["name"], "the kernel was faster"
        read(environment, "FencepostDriverMemory", pipeline, monitor.prometheus)
        stream.apply(job=of_leaking("spiralling"))
        monitor.wait_received("FencepostDriverMemory", "resolved", seconds=300, **labels)
        monitor.wait_received("FencepostGarbageCollection", seconds=300, **labels)
        read(environment, "FencepostGarbageCollection", pipeline, monitor.prometheus)
        stream.apply(job=of_leaking("corrected"))
        monitor.wait_received("FencepostGarbageCollection", "resolved", seconds=300, **labels)
        monitor.receiver.forget("FencepostGarbageCollection")
        stream.apply(job=of_leaking("caching"))
        monitor.wait_received("FencepostGarbageCollection", seconds=300, **labels)
        assert (share(monitor, IN_EXECUTOR) or 0) > (share(monitor, IN_DRIVER) or 0)
        printed = read(environment, "FencepostGarbageCollection", pipeline, monitor.prometheus)
        assert any("executor=" in one.output for one in printed), printed
        stream.apply(job=of_leaking("corrected"))
        monitor.wait_received("FencepostGarbageCollection", "resolved", seconds=300, **labels)
        pipeline.wait_ready()
    stream.check_every_row()


def test_an_operator_near_its_limit_is_reported(monitor: Monitoring, stream: Stream, kubectl: Kubectl) -> None:
    """A process of its container grows."""
    with operator_full(kubectl.within(NAMESPACE)):
        monitor.wait_received("FencepostOperatorMemory", namespace=NAMESPACE)
        read(stream.place.environment, "FencepostOperatorMemory", stream.pipeline, monitor.prometheus)
    monitor.wait_received("FencepostOperatorMemory", "resolved", namespace=NAMESPACE)


def test_faults_of_runs_and_of_the_operator_are_reported(monitor: Monitoring, stream: Stream, kubectl: Kubectl) -> None:
    """A driver killed again and again, half a record of JSON, an open transaction, an operator without a pod."""
    pipeline, environment = stream.pipeline, stream.place.environment
    faults = Faults(kubectl=kubectl, nodes=Nodes.of(environment))
    labels: dict[str, Any] = {"namespace": kubectl.namespace, "name": pipeline.name}
    stream.spec = {"restart": {"maxBackoff": "1s"}, "onPoison": {"action": "deadLetter", "failures": 1}}
    stream.apply()
    stream.load.burst(300)

    for _ in range(MOST_KILLS):
        epoch = pipeline.wait_ready()["epoch"]
        faults.sigkill(pipeline.driver())
        stream.kills += 1
        pipeline.wait_ready(epoch=epoch + 1)
        if pipeline.restarts() > 3 and monitor.receiver.received("FencepostRestartLoop", **labels):
            break
    monitor.wait_received("FencepostRestartLoop", **labels)
    read(environment, "FencepostRestartLoop", pipeline, monitor.prometheus)

    producer = Producer({"bootstrap.servers": environment.kafka_host})
    producer.produce(stream.load.ledger.topic, partition=1, key=b"bad", value=b'{"year": 2013, "month":')
    assert producer.flush(30) == 0
    stream.load.burst(300)  # where every record fails, the code is wrong and not a record
    monitor.wait_received("FencepostDeadLettersWritten", seconds=240, **labels)
    read(environment, "FencepostDeadLettersWritten", pipeline, monitor.prometheus)
    stream.check_every_row()

    with open_transaction(environment.kafka_host, stream.load.ledger.topic):
        monitor.wait_received("FencepostTransactionStalled", seconds=240, **labels)
        read(environment, "FencepostTransactionStalled", pipeline, monitor.prometheus)
    monitor.wait_received("FencepostTransactionStalled", "resolved", **labels)

    operator = kubectl.within(NAMESPACE)
    of_operator: dict[str, Any] = {"namespace": NAMESPACE}
    monitor.wait_received("FencepostWatchdog", **of_operator)
    operator.run("scale", f"deployment/{RELEASE}", "--replicas=0")
    try:
        monitor.wait_received("FencepostOperatorDown", **of_operator)
        monitor.wait_received("FencepostWatchdog", "resolved", **of_operator)
        read(environment, "FencepostOperatorDown", pipeline, monitor.prometheus)
        read(environment, "FencepostWatchdog", pipeline, monitor.prometheus)
    finally:
        operator.run("scale", f"deployment/{RELEASE}", "--replicas=1")
        faults.operator_ready()
    monitor.wait_received("FencepostOperatorDown", "resolved", **of_operator)

    # What was counted is out of sight by and by.
    monitor.wait_received("FencepostRestartLoop", "resolved", seconds=600, **labels)
    monitor.wait_received("FencepostDeadLettersWritten", "resolved", seconds=600, **labels)
