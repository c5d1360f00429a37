"""The stage: an example in the testbed, from an empty namespace to an empty namespace again.

Everything here has the names that the example's own files give it, because the example is applied as it is.  Nothing of
another's is touched: a namespace of that name that was not made here is refused.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Self

import yaml

from fencepost.fence import Fence, Fenced, FenceRow, FenceSchemaMissing
from fencepost.fence.cassandra.table import CassandraFenceTable
from flights.history import HistoryRow, read_history
from flights.sink import CassandraAddress, Table, run_script, session
from flights.topics import Topics
from harness.fences import ANSWER_SECONDS, read_row
from harness.kubernetes.kubectl import Kubectl, KubectlError, Object
from harness.kubernetes.nodes import Container, Nodes
from harness.pipelines import KIND, merged
from harness.waiting import eventually
from testbed.environment import Environment

EXAMPLES: Final = Path(__file__).resolve().parents[2] / "examples"
MADE_BY: Final = "fencepost.test/made-by"
SCOPE: Final = "default"
"""The operator's scope in the testbed: the first part of a fence row's key."""
PARTITIONS: Final = 4
DRIVER: Final = "streaming.fencepost.dev/component=driver"
EPOCH: Final = "streaming.fencepost.dev/epoch"
GONE_SECONDS: Final = 120.0
HISTORY_SECONDS: Final = 15.0


class SceneError(Exception):
    """The stage cannot be set; the message says what helps."""


@dataclass(frozen=True, slots=True)
class Killed:
    """A driver that was killed. `at` is in seconds since 1970, by the clock that its node has."""

    pod: str
    epoch: int
    at: float


@dataclass(frozen=True, slots=True)
class Scene:
    """One example in the testbed. `cassandra` is an open session."""

    environment: Environment
    cassandra: Any
    kubectl: Kubectl
    nodes: Nodes
    folder: Path
    manifest: Mapping[str, Any]
    """The example's StreamingPipeline."""

    @classmethod
    @contextmanager
    def of(cls, environment: Environment, example: str = "departures") -> Iterator[Self]:
        """The example's stage, with a session of Cassandra for as long as the block lasts."""
        folder = EXAMPLES / example
        namespace = yaml.safe_load((folder / "kustomization.yaml").read_text())["namespace"]
        address = CassandraAddress(
            environment.cassandra_host,
            environment.cassandra_port,
            environment.cassandra_username,
            environment.cassandra_password,
        )
        with session(address) as opened:
            yield cls(
                environment=environment,
                cassandra=opened,
                kubectl=Kubectl.of(environment, namespace),
                nodes=Nodes.of(environment),
                folder=folder,
                manifest=yaml.safe_load((folder / "pipeline.yaml").read_text()),
            )

    @property
    def name(self) -> str:
        """The pipeline's name."""
        return str(self.manifest["metadata"]["name"])

    @property
    def topics(self) -> list[str]:
        """Topics it reads."""
        return list(self.manifest["spec"]["source"]["kafka"]["topics"])

    @property
    def tables(self) -> list[Table]:
        """Tables it writes."""
        sinks = [sink["cassandra"] for sink in self.manifest["spec"]["sinks"]]
        return [Table(sink["keyspace"], sink["table"]) for sink in sinks]

    @property
    def fence_keyspace(self) -> str:
        """Where its fence row lives."""
        return str(self.manifest["spec"]["checkpoint"]["cassandra"].get("keyspace", "fencepost"))

    @property
    def key(self) -> str:
        """Its fence row's key."""
        return f"{SCOPE}/{self.kubectl.namespace}/{self.name}"

    def clear(self) -> None:
        """Remove what an earlier demo left, or this one made. Raises SceneError when the namespace is another's."""
        namespace = self.kubectl.get("namespace", self.kubectl.namespace)
        if namespace is not None:
            if MADE_BY not in namespace["metadata"].get("labels", {}):
                raise SceneError(
                    f"namespace {self.kubectl.namespace} is in use by another user; if it can go:"
                    f" kubectl delete namespace {self.kubectl.namespace}"
                )
            self.remove_pipeline()
            self.kubectl.delete("namespace", self.kubectl.namespace, seconds=GONE_SECONDS)
        self.forget_fence()
        topics = Topics(self.environment.kafka_host)
        for topic in self.topics:
            topics.delete(topic)
        for table in self.tables:
            self.cassandra.execute(f"DROP TABLE IF EXISTS {table}")

    def prepare(self, partitions: int = PARTITIONS) -> None:
        """Make the topics and the tables."""
        for topic in self.topics:
            Topics(self.environment.kafka_host).create(topic, partitions)
        run_script(self.cassandra, (self.folder / "schema.cql").read_text())

    def apply(self, spec: Mapping[str, Any] | None = None) -> None:
        """`kubectl apply -k` the example; with `spec`, a JSON merge patch, as a user's own overlay of it would be."""
        if spec is None:
            self.kubectl.run("apply", "-k", str(self.folder))
        else:
            self.kubectl.run("apply", "-f", "-", text=yaml.safe_dump_all(self._overlaid(spec)))
        self.kubectl.run("label", "--overwrite", "namespace", self.kubectl.namespace, f"{MADE_BY}=demo")

    def apply_pipeline(self, manifest: Mapping[str, Any]) -> None:
        """Apply one more pipeline into the namespace."""
        self.kubectl.apply(manifest)

    def remove_pipeline(self) -> None:
        """Delete every pipeline of the namespace and wait until the operator has let go of them.

        The operator deletes the fence row of a stateful one too: else the files of its state stay.
        """
        for found in self.kubectl.items(KIND):
            if found["spec"]["job"].get("mode") == "Stateful":
                self.kubectl.patch(KIND, found["metadata"]["name"], {"spec": {"deletionPolicy": "Delete"}})
        self.kubectl.run("delete", KIND, "--all", f"--timeout={GONE_SECONDS:.0f}s", seconds=GONE_SECONDS + 10)

    def forget_fence(self) -> None:
        """Release the fence row, which outlives its pipeline, so that the next one begins at the beginning."""
        row = self.fence()
        if row is None:
            return
        try:
            Fence(self._fences(), self.key).release(row)
        except Fenced as error:
            raise SceneError(
                f"the fence row {self.key} moves although its pipeline is gone; is a second operator there?"
            ) from error

    def fence(self, *, patience: float = ANSWER_SECONDS) -> FenceRow | None:
        """The fence row, read at SERIAL; None before there is one. `patience` in seconds, as of `read_row`."""
        try:
            return read_row(Fence(self._fences(), self.key), seconds=patience)
        except FenceSchemaMissing:
            return None

    def history(self) -> list[HistoryRow]:
        """The fence row's changes, oldest first."""
        return list(read_history(self.cassandra, self.fence_keyspace, self.key))

    def whole_history(self) -> list[HistoryRow]:
        """The same, once it has the fence row's newest change: a change is appended a moment after it is made."""
        row = self.fence()

        def whole() -> list[HistoryRow] | None:
            found = self.history()
            return found if row is None or (found and found[-1].version >= row.version) else None

        return eventually(f"the history of {self.key} is whole", whole, seconds=HISTORY_SECONDS, pause=0.2)

    def pipeline(self) -> Object | None:
        """The StreamingPipeline as the API server has it."""
        return self.kubectl.get(KIND, self.name)

    def drivers(self) -> list[Object]:
        """The driver's pods, of this run and of earlier ones."""
        return self.kubectl.items("pods", f"--selector={DRIVER}")

    def driver(self, *, seconds: float = 60) -> Object:
        """Wait for a running driver; return the newest one's pod, which is not one that awaits its epoch."""

        def running() -> Object | None:
            row = self.fence()
            found = [(int(pod["metadata"]["labels"][EPOCH]), pod) for pod in self.drivers() if Container.of(pod)]
            begun = [(epoch, pod) for epoch, pod in found if row is not None and epoch <= row.epoch]
            return max(begun, key=lambda one: one[0], default=(0, None))[1]

        return eventually(f"{self.name} has a running driver", running, seconds=seconds, pause=0.2)

    def signal_driver(self, signal: str) -> Killed:
        """Send a signal to every process of the running driver's container, from its node: no grace, no warning."""
        pod = self.driver()
        container = Container.of(pod)
        if container is None:
            raise SceneError(f"{pod['metadata']['name']} ended unexpectedly")
        processes = " ".join(str(process) for process in self.nodes.processes(container))
        # The node says when: the way there takes a while.
        said = self.nodes.run(container.node, "sh", "-c", f"date +%s.%N; kill -{signal} {processes}", check=False)
        metadata = pod["metadata"]
        return Killed(pod=metadata["name"], epoch=int(metadata["labels"][EPOCH]), at=float(said.split()[0]))

    def diagnosis(self) -> Iterable[tuple[str, str]]:
        """(what, text) of all that explains a failure: the pipeline, its events, its pods, the logs' last lines."""
        namespace = self.kubectl.namespace
        yield from self._asked(f"kubectl -n {namespace} describe", "describe", KIND, self.name)
        yield from self._asked("pods", "get", "pods", "-o", "wide")
        yield from self._asked("events", "get", "events", "--sort-by=.lastTimestamp")
        yield from self._asked("driver's log", "logs", f"--selector={DRIVER}", "--tail=25", "--prefix")
        operator = "--namespace=fencepost-system"
        yield from self._asked("operator's log", operator, "logs", "deployment/fencepost", "--tail=25")

    def _asked(self, what: str, *words: str) -> Iterator[tuple[str, str]]:
        try:
            yield what, self.kubectl.run(*words, seconds=20)
        except KubectlError as error:
            yield what, str(error)

    def _overlaid(self, spec: Mapping[str, Any]) -> Iterator[Object]:
        for document in yaml.safe_load_all(self.kubectl.run("kustomize", str(self.folder))):
            if document["kind"] == self.manifest["kind"]:
                document["spec"] = merged(document["spec"], spec)
            yield document

    def _fences(self) -> CassandraFenceTable:
        return CassandraFenceTable.over(self.cassandra, self.fence_keyspace)
