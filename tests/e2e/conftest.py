"""What the e2e tests stand on: a namespace, a keyspace of tables and one of fences, all gone afterwards."""

from __future__ import annotations

from collections.abc import Generator, Iterator
from typing import Any

import pytest

from e2e.places import prepared
from e2e.stream import Applied, Stream, create_table
from flights.dataset import Events
from flights.topics import Topics
from harness.faults.cluster_faults import Faults
from harness.kubernetes.kubectl import Kubectl, KubectlError
from harness.kubernetes.nodes import Nodes
from harness.load import Load
from harness.pipelines import DEPARTURES, KIND, Pipeline, Place, code, events
from testbed.cluster import WORKERS
from testbed.environment import Environment, load
from testbed.release import NAMESPACE as OPERATOR_NAMESPACE
from testbed.release import RELEASE


@pytest.fixture(scope="package")
def environment() -> Environment:
    """Return the testbed that is up; without one there is nothing to test."""
    return load()


@pytest.fixture(scope="package")
def place(environment: Environment) -> Iterator[Place]:
    """Return a namespace and keyspaces of the folder's own."""
    with prepared(environment, "e2e", waits=True) as made:
        yield made


@pytest.fixture(scope="package")
def kubectl(place: Place) -> Kubectl:
    """Return kubectl for the folder's namespace."""
    return Kubectl.of(place.environment, place.namespace)


@pytest.fixture(scope="package")
def nodes(place: Place) -> Iterator[Nodes]:
    """Return the cluster's nodes; a second name that an image got there goes at the end."""
    nodes = Nodes.of(place.environment)
    yield nodes
    for node in WORKERS:
        nodes.untag(node, place.second_image)


@pytest.fixture(scope="package")
def faults(kubectl: Kubectl, nodes: Nodes) -> Faults:
    """Return what injects faults."""
    return Faults(kubectl=kubectl, nodes=nodes)


@pytest.fixture(scope="package")
def applied(place: Place, kubectl: Kubectl) -> Iterator[Applied]:
    """Return a function that makes topic and table of a name, applies a pipeline over them and returns its stream."""
    topics: list[str] = []
    bootstrap = place.environment.kafka_host

    def make(name: str, *, example: str = DEPARTURES, feed: Events | None = None, **spec: Any) -> Stream:
        topic = f"{place.namespace}-{name}"
        loaded = Load.to(bootstrap, topic, feed)
        topics.append(topic)
        table = name.replace("-", "_")
        create_table(place, table, example)
        kubectl.apply(code(example))
        pipeline = Pipeline(kubectl, name)
        stream = Stream(place=place, pipeline=pipeline, load=loaded, table=table, spec=spec, example=example)
        stream.apply()
        return stream

    yield make
    kubectl.run("delete", KIND, "--all", "--timeout=90s", seconds=100)
    for topic in topics:
        Topics(bootstrap).delete(topic)


@pytest.fixture(scope="package")
def shared(applied: Applied) -> Stream:
    """Return the pipeline that most tests share, as it is: one start for all of them."""
    return applied("departures", **SHARED)


SHARED: dict[str, Any] = {
    # What a test changes is said here, so that applying the manifest again changes it back.
    "suspend": False,
    "deletionPolicy": "Retain",
    "source": {"kafka": {"maxRecordsPerBatch": 4000}},
    # A driver that is frozen for a minute must outlive the order to end: it is the zombie that a test wakes.
    "job": {"terminationGracePeriodSeconds": 120},
    "restart": {"maxBackoff": "2s", "stallTimeout": "20s"},
}


@pytest.fixture
def stream(shared: Stream, faults: Faults) -> Stream:
    """Return the shared pipeline, streaming; what a failed test left half-done is repaired first."""
    faults.operator_ready()
    shared.apply()
    shared.pipeline.wait_ready()
    return shared


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item, call: pytest.CallInfo[None]
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Add to a failed test's report what the cluster says about it."""
    report = yield
    kubectl = getattr(item, "funcargs", {}).get("kubectl")
    if call.excinfo is not None and isinstance(kubectl, Kubectl):
        report.sections.extend(_evidence(kubectl))
    return report


def _evidence(kubectl: Kubectl) -> Iterator[tuple[str, str]]:
    yield "events", "\n".join(events(kubectl).splitlines()[-60:])
    commands = {
        "pipelines": ("get", KIND, '--output=jsonpath={range .items[*]}{.metadata.name}{"\\n"}{.status}{"\\n"}{end}'),
        "objects": ("get", "jobs,pods,statefulsets,persistentvolumeclaims", "--output=wide"),
        "log of the drivers": ("logs", "--selector=streaming.fencepost.dev/component=driver", "--tail=60", "--prefix"),
        "log of workers": ("logs", "--selector=streaming.fencepost.dev/component=worker", "--tail=15", "--prefix"),
        "log of trials": ("logs", "--selector=streaming.fencepost.dev/component=trial", "--tail=60", "--prefix"),
    }
    for title, words in commands.items():
        yield title, _said(kubectl, *words)
    operator = kubectl.within(OPERATOR_NAMESPACE)
    yield "log of the operator", _said(operator, "logs", f"deployment/{RELEASE}", "--tail=120")


def _said(kubectl: Kubectl, *words: str) -> str:
    try:
        return kubectl.run(*words, seconds=20)
    except KubectlError as error:
        return str(error)
