"""The whole operator as a process, on a real API server with its controllers and the testbed's Kafka and Cassandra.

No node is there, so pods only say that they run; everything else is real: Helm, the chart's own rights, finalizers,
garbage collection, the end of a namespace, the fence's rows.  Each command that docs/operations.md names is run here.
"""

from __future__ import annotations

import re
import secrets
import shlex
import shutil
import subprocess
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from cassandra.cluster import Session

from contract.cassandra import open_session
from fakes.relay import relay_to
from fencepost.fence import FenceRow
from fencepost.fence.cassandra.table import CassandraFenceTable
from fencepost_operator.api import GROUP, KIND, VERSION
from flights.topics import Topics
from harness.kubernetes.control_plane import control_plane
from harness.kubernetes.kubectl import Kubectl, Object
from harness.waiting import eventually
from integration.lifecycle.kubelet import Kubelet
from integration.lifecycle.operators import HOME, RELEASE, THIS, Code, Installed, previous_release
from present import present
from testbed.environment import Environment

pytestmark = [pytest.mark.integration, pytest.mark.timeout(600)]

FLEET = tuple(f"orders-{number}" for number in range(12))
PLACE = "fleet"
MOST_AT_ONCE = 5
"""The chart's maxConcurrentRestarts."""


@dataclass(frozen=True, slots=True)
class Stage:
    """An operator's chart in a cluster, and what pipelines need: a topic without records, a keyspace, a Secret."""

    installed: Installed
    environment: Environment
    topic: str
    keyspace: str
    session: Session

    @property
    def kubectl(self) -> Kubectl:
        """Of an administrator, in the namespace of the pipelines."""
        return self.installed.plane.kubectl(PLACE)

    def in_namespace(self, name: str) -> Kubectl:
        """Make a namespace with the credentials in it."""
        kubectl = self.installed.plane.kubectl(name)
        kubectl.apply({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}})
        account = {"username": self.environment.cassandra_username, "password": self.environment.cassandra_password}
        kubectl.apply({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "account"}, "stringData": account})
        return kubectl

    def manifest(self, name: str, **spec: Any) -> Object:
        """Return a pipeline that has nothing to read."""
        cassandra = {
            "contactPoints": [self.environment.cassandra_host],
            "port": self.environment.cassandra_port,
            "keyspace": self.keyspace,
            "consistency": "ONE",
            "credentialsFrom": {"secretName": "account"},
            "replication": {"class": "SimpleStrategy", "replicationFactor": 1},
        }
        kafka = {"bootstrapServers": self.environment.kafka_host, "topics": [self.topic]}
        return {
            "apiVersion": f"{GROUP}/{VERSION}",
            "kind": KIND,
            "metadata": {"name": name},
            "spec": {
                "job": {"image": "fencepost.test/absent:1", "entrypoint": "orders:transform"},
                "source": {"kafka": kafka},
                "sinks": [{"name": "orders", "cassandra": {"keyspace": "absent", "table": "orders"}}],
                "checkpoint": {"cassandra": cassandra},
                **spec,
            },
        }

    def pipelines(self) -> dict[str, Object]:
        """Return each pipeline of the fleet."""
        return {item["metadata"]["name"]: item for item in self.kubectl.items("spl")}

    def epoch(self) -> int:
        """Return the epoch of the fleet, which restarts together."""
        (epoch,) = {item["status"]["epoch"] for item in self.pipelines().values()}
        return int(epoch)

    def generation(self) -> int:
        """Return the generation of the fleet's clusters."""
        (generation,) = {item["status"]["cluster"]["generation"] for item in self.pipelines().values()}
        return int(generation)

    def row(self, name: str, namespace: str = PLACE) -> FenceRow:
        """Return a pipeline's row."""
        return present(CassandraFenceTable.over(self.session, self.keyspace).read(f"default/{namespace}/{name}"))

    def wait_ready(self, *names: str) -> None:
        """Wait until each of these is Ready, for the spec as it is."""

        def ready() -> bool:
            found = self.pipelines()
            not_yet = {name: said(found.get(name)) for name in names if not is_ready(found.get(name))}
            assert not not_yet, not_yet
            return True

        eventually("they stream", ready, seconds=240, pause=1.0)

    def objects(self) -> dict[str, str]:
        """Return what a restart would replace: the uid of each Job, pod and StatefulSet, and its generation."""
        kinds = "jobs,pods,statefulsets,controllerrevisions"
        found = {}
        for item in self.kubectl.items(kinds):
            metadata = item["metadata"]
            found[f"{item['kind']} {metadata['name']}"] = f"{metadata['uid']} {metadata.get('generation')}"
        revisions = self.installed.plane.kubectl(HOME).items("secrets", f"--selector=owner=helm,{GROUP}/pipeline")
        return found | {f"Helm {item['metadata']['name']}": item["metadata"]["uid"] for item in revisions}


def is_ready(pipeline: Object | None) -> bool:
    """Return whether what runs is what the spec asks for."""
    if pipeline is None or pipeline["status"].get("observedGeneration") != pipeline["metadata"]["generation"]:
        return False
    return any(one["type"] == "Ready" and one["status"] == "True" for one in pipeline["status"].get("conditions", []))


def said(pipeline: Object | None) -> str:
    """Return a pipeline's message."""
    return str((pipeline or {}).get("status", {}).get("message", "it is gone"))


def documented(kubectl: Kubectl, command: str) -> str:
    """Run a command of kubectl as it is written for people."""
    words = shlex.split(command)
    assert words[0] == "kubectl"
    if "-A" not in words:
        return kubectl.run(*words[1:], seconds=180)
    everywhere = [*kubectl.command, *words[1:]]
    return subprocess.run(everywhere, check=True, capture_output=True, text=True, timeout=180).stdout


@pytest.fixture(scope="module")
def stage(installed: Installed, environment: Environment, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stage]:
    """Twelve pipelines that an operator of the release before brought to stream; it has ended."""
    mark = secrets.token_hex(3)
    topic, keyspace, session = f"lifecycle-{mark}", f"lifecycle_{mark}", open_session()
    Topics(environment.kafka_host).create(topic, 1)
    previous = previous_release(tmp_path_factory.mktemp("release"))
    made = Stage(installed, environment, topic, keyspace, session)
    kubectl = made.in_namespace(PLACE)
    with Kubelet(installed.plane, CassandraFenceTable.over(session, keyspace)).at_work():
        with installed.operator(previous):
            kubectl.apply(*(made.manifest(name) for name in FLEET))
            made.wait_ready(*FLEET)
        yield made
    session.execute(f"DROP KEYSPACE IF EXISTS {keyspace}")
    session.cluster.shutdown()
    Topics(environment.kafka_host).delete(topic)


def test_an_upgrade_of_the_operator_restarts_none_of_twelve_pipelines(stage: Stage) -> None:
    """The operator of the release before has ended, its chart is upgraded to another image, and this one starts."""
    before, was = stage.objects(), stage.pipelines()
    assert sum(key.startswith("Pod ") for key in before) == 3 * len(FLEET)
    stage.installed.upgrade("--set", "image.tag=another")
    with stage.installed.operator():
        time.sleep(10)  # each has been looked at several times by then
        after, now = stage.objects(), stage.pipelines()
        assert after == before
        assert {name: spec_hash(item) for name, item in now.items()} == {name: spec_hash(was[name]) for name in was}
        assert stage.epoch() == 1
        assert all(is_ready(item) for item in now.values())


@pytest.mark.long
def test_a_rotated_secret_restarts_twelve_pipelines_a_few_at_a_time(stage: Stage) -> None:
    """Injected: all name the same Secret, and its content changes; the operator ends while some of them restart."""
    waves: list[dict[str, Object]] = []
    epoch, generation = stage.epoch(), stage.generation()
    with stage.installed.operator():
        stage.wait_ready(*FLEET)
        stage.kubectl.patch("secret", "account", {"stringData": {"rotated": "once"}})
        eventually("some restart", lambda: look(stage, waves) > 1, seconds=90, pause=0.2)
    with stage.installed.operator():
        wait_restarted(stage, waves, epoch=epoch + 1)
    at_once = [sum(restarts(item) for item in wave.values()) for wave in waves]
    assert max(at_once) == MOST_AT_ONCE
    queued = {name for wave in waves for name, item in wave.items() if reason(item) == "RestartQueued"}
    assert len(queued) >= len(FLEET) - 2 * MOST_AT_ONCE, "the others wait for their turn and say so"
    assert stage.generation() == generation + 1


@pytest.mark.long
def test_another_chart_restarts_twelve_pipelines_a_few_at_a_time(stage: Stage, tmp_path: Path) -> None:
    """Injected: the chart of a later release, in which a master has longer to end."""
    later = shutil.copytree(THIS.chart, tmp_path / "spark-cluster")
    helpers = later / "templates" / "_helpers.tpl"
    longer = "terminationGracePeriodSeconds: 20"
    helpers.write_text(helpers.read_text().replace("terminationGracePeriodSeconds: 10", longer))
    assert longer in helpers.read_text()
    settled, waves = stage.objects(), list[dict[str, Object]]()
    epoch, generation = stage.epoch(), stage.generation()
    with stage.installed.operator():
        time.sleep(10)  # each is looked at several times by then
        assert stage.objects() == settled, "the same operator and chart replace nothing"
        stage.kubectl.run("scale", f"spl/{FLEET[0]}", "--replicas=2")
        stage.wait_ready(FLEET[0])
        assert stage.epoch() == epoch, "a scale is in place"
    with stage.installed.operator(Code(sources=THIS.sources, chart=later)):
        wait_restarted(stage, waves, epoch=epoch + 1)
    assert max(sum(restarts(item) for item in wave.values()) for wave in waves) == MOST_AT_ONCE
    assert stage.generation() == generation + 1


def look(stage: Stage, waves: list[dict[str, Object]]) -> int:
    """Note the pipelines as they are; return how many restart."""
    waves.append(stage.pipelines())
    return sum(restarts(item) for item in waves[-1].values())


def wait_restarted(stage: Stage, waves: list[dict[str, Object]], *, epoch: int) -> None:
    """Wait until each pipeline streams in this epoch, and note how they get there."""

    def done() -> bool:
        look(stage, waves)
        return all(item["status"]["epoch"] == epoch and is_ready(item) for item in waves[-1].values())

    eventually("each has restarted", done, seconds=300, pause=0.5)
    assert max(item["status"]["epoch"] for wave in waves for item in wave.values()) == epoch, "none did twice"


def restarts(pipeline: Object) -> bool:
    """Return whether it is being restarted by plan."""
    return "plannedRestartSince" in pipeline["status"]


def reason(pipeline: Object) -> str:
    """Return why it is Ready, or is not."""
    return next(str(one["reason"]) for one in pipeline["status"]["conditions"] if one["type"] == "Ready")


def spec_hash(pipeline: Object) -> str:
    """Return what is recorded of the spec that runs."""
    return str(pipeline["status"]["run"]["specHash"])


@pytest.mark.long
def test_a_finalizer_removed_by_hand_leaves_nothing(stage: Stage) -> None:
    """`kubectl delete --force` waits for the finalizer; the documented patch removes it while no operator runs."""
    name, kubectl = FLEET[1], stage.kubectl
    committed = stage.row(name)
    kubectl.run("delete", "spl", name, "--force", "--grace-period=0", "--wait=false")
    assert kubectl.get("spl", name) is not None
    documented(kubectl, "kubectl patch spl " + name + """ --type=merge --patch='{"metadata":{"finalizers":null}}'""")

    def owned() -> list[str]:
        selector = f"--selector={GROUP}/pipeline={name}"
        kinds = (
            "jobs,pods,statefulsets,services,poddisruptionbudgets,configmaps,secrets,persistentvolumeclaims,"
            "controllerrevisions"
        )
        return [f"{item['kind']} {item['metadata']['name']}" for item in kubectl.items(kinds, selector)]

    def released() -> list[str]:
        selector = f"--selector=owner=helm,{GROUP}/pipeline={name}"
        return [item["metadata"]["name"] for item in kubectl.within(HOME).items("secrets", selector)]

    eventually("Kubernetes collects what the pipeline owned", lambda: not owned(), seconds=120)
    assert released(), "Kubernetes does not collect Helm's release"
    with stage.installed.operator():
        eventually("the operator uninstalls the release", lambda: not released(), seconds=120)
        kubectl.apply(stage.manifest(name))
        stage.wait_ready(name)
    row = stage.row(name)
    assert (row.epoch, row.offsets) == (committed.epoch + 1, committed.offsets)


@pytest.mark.long
def test_a_namespace_is_deleted_along_with_its_cassandra(stage: Stage) -> None:
    """deletionPolicy Delete, with a run that holds the row; then nothing passes to Cassandra any more.

    A finalizer keeps the Secret with the credentials: without them, the operator gives up on its own after 60 s.
    """
    place, environment = "ending", stage.environment
    kubectl = stage.in_namespace(place)
    kubectl.patch("secret", "account", {"metadata": {"finalizers": ["fencepost.test/keep"]}})
    with relay_to(environment.cassandra_host, environment.cassandra_port) as relay, stage.installed.operator():
        manifest = stage.manifest("orders", deletionPolicy="Delete")
        manifest["spec"]["checkpoint"]["cassandra"] |= {"contactPoints": ["127.0.0.1"], "port": relay.port}
        kubectl.apply(manifest)
        eventually("it streams", lambda: is_ready(kubectl.get("spl", "orders")), seconds=120)
        before = stage.row("orders", place)
        assert before.driver is not None
        relay.be_silent()
        kubectl.run("delete", "namespace", place, "--wait=false")

        def waits_for() -> str:
            message = said(kubectl.get("spl", "orders"))
            assert "the namespace is being deleted" in message, message
            return message

        message = eventually("the pipeline says what it waits for", waits_for, seconds=120)
        assert "the operator does so after 300 s" in message
        command = present(re.search("kubectl annotate [^;]*", message))
        documented(kubectl, command[0].rstrip("."))
        eventually("the pipeline is gone", lambda: kubectl.get("spl", "orders") is None, seconds=120)
        assert stage.row("orders", place) == before, "the checkpoint is given up as it is"
        kubectl.patch("secret", "account", {"metadata": {"finalizers": None}})
        eventually("the namespace is gone", lambda: kubectl.get("namespace", place) is None, seconds=120)
        relay.speak()


@pytest.mark.long
def test_a_pipeline_moves_to_another_cluster_and_continues_there(stage: Stage) -> None:
    """A second API server with an operator of the same scope; the commands are those of the docs and the messages."""
    name, first = FLEET[2], stage.kubectl
    before = stage.row(name)
    with control_plane() as plane:
        other = Installed.by_helm(plane, stage.installed.folder)
        second = Stage(other, stage.environment, stage.topic, stage.keyspace, stage.session)
        kubectl = second.in_namespace(PLACE)
        table = CassandraFenceTable.over(stage.session, stage.keyspace)
        with Kubelet(plane, table).at_work(), stage.installed.operator(), other.operator():
            documented(first, f"""kubectl patch spl {name} --type=merge --patch='{{"spec":{{"suspend":true}}}}'""")
            # Not state: it is Suspended while the driver still stops, and may yet be fenced in another epoch.
            ended = """--for=jsonpath='{.status.conditions[?(@.type=="Ready")].reason}'=Suspended"""
            documented(first, f"kubectl wait spl/{name} {ended} --timeout=2m")
            kubectl.apply(stage.manifest(name))

            def refused() -> str | None:
                message = said(kubectl.get("spl", name))
                return message if "belongs to a pipeline of another Kubernetes cluster" in message else None

            message = eventually("the second operator refuses", refused, seconds=90)
            command = present(re.search("kubectl annotate [^;]*", message))
            documented(kubectl, command[0])
            second.wait_ready(name)
            moved = stage.row(name)
            assert moved.epoch > before.epoch
            assert moved.offsets == before.offsets
            assert moved.owner != before.owner
            first.patch("spl", name, {"spec": {"suspend": False}})
            stalled = f"spl/{name} --for=condition=Stalled --timeout=2m"
            documented(first, f"kubectl wait {stalled}")
            assert "belongs to a pipeline of another" in said(first.get("spl", name))
            documented(first, f"kubectl delete spl {name} --timeout=2m")
            assert stage.row(name).owner == moved.owner, "the first cluster's deletion leaves the row alone"


def test_an_uninstall_is_refused_while_pipelines_exist_and_then_leaves_no_finalizer(stage: Stage) -> None:
    """The hook's pod is played: what it would run is run as a process with its rights, and its end written to it."""
    kubectl, home = stage.kubectl, stage.kubectl.within(HOME)
    refused = _uninstall(stage)
    assert refused.returncode != 0
    assert "fencepost-has-pipelines" in refused.stderr
    assert home.get("deployment", RELEASE) is not None, "nothing was removed"
    with stage.installed.operator():
        documented(kubectl, "kubectl delete spl --all -A")
    done = _uninstall(stage)
    assert done.returncode == 0, done.stderr
    assert home.get("deployment", RELEASE) is None
    assert kubectl.items("crds"), "the CRDs stay"
    assert not home.items("secrets", "--selector=owner=helm")
    Installed.by_helm(stage.installed.plane, stage.installed.folder)  # other tests have this control plane after it


def _uninstall(stage: Stage) -> Any:
    """Run `helm uninstall`, and the hook's pod beside it."""
    home, ended = stage.kubectl.within(HOME), threading.Event()

    def pod() -> Object | None:
        pods = home.items("pods", "--selector=app.kubernetes.io/component=uninstall")
        return next((found for found in pods if found["status"]["phase"] == "Pending"), None)

    def play() -> None:
        found = eventually("the hook has a pod", lambda: ended.is_set() or pod(), seconds=60)
        if not isinstance(found, dict):
            return
        result = stage.installed.guard()
        state = {"terminated": {"exitCode": result.returncode, "reason": "Error" if result.returncode else "Completed"}}
        phase = "Failed" if result.returncode else "Succeeded"
        status = {"name": "uninstall", "ready": False, "restartCount": 0, "image": "", "imageID": "", "state": state}
        change = {"status": {"phase": phase, "containerStatuses": [status]}}
        home.patch("pod", found["metadata"]["name"], change, subresource="status")

    thread = threading.Thread(target=play)
    thread.start()
    try:
        return stage.installed.helm("uninstall", RELEASE)
    finally:
        ended.set()
        thread.join()
