"""Where the campaign plays: a namespace, a topic, two tables, a pipeline over them, and all of it gone afterwards."""

from __future__ import annotations

import base64
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from campaign.checker import Output, Row
from fencepost.contract import CODE_DIR
from fencepost.fence import Fence, FenceRow
from fencepost.fence.cassandra.table import CassandraFenceTable
from flights.history import HistoryRow, read_history
from flights.sink import CassandraAddress, CassandraDownError, run_script, session
from flights.topics import Topics
from harness.faults.clocks import compile_library
from harness.fences import read_row
from harness.kubernetes.kubectl import Kubectl, Object
from harness.kubernetes.nodes import Nodes
from harness.pipelines import KIND, SECRET, Pipeline, Place, manifest, merged
from harness.waiting import eventually
from testbed.environment import Environment
from testbed.process import Transcript
from testbed.programs.host_packages import install
from testbed.services.kafka_and_cassandra import restricted_namespace

NAME: Final = "campaign"
PARTITIONS: Final = 4
SCOPE: Final = "default"
"""The operator's own, in the testbed: the first part of a fence row's key."""
CODE: Final = Path(__file__).with_name("campaign_job.py")
CLOCK_FILE: Final = "tmp/fencepost-clock"
"""The offset of a container's wall clock: a file of its volume tmp, which is at /tmp."""
_CODE_NAME: Final = "code"
_LIBRARY: Final = "libclock.so"
_SCHEMA: Final = """
CREATE KEYSPACE {tables} WITH replication = {{'class': 'SimpleStrategy', 'replication_factor': 1}};
CREATE TABLE {tables}.records (topic text, partition int, "offset" bigint, name text, id bigint, text text,
  PRIMARY KEY ((topic, partition), "offset"));
CREATE TABLE {tables}.names (name text PRIMARY KEY, topic text, partition int, "offset" bigint, id bigint, text text);
CREATE TABLE {tables}.names_by_offset (pipeline text, topic text, partition int, bucket bigint, "offset" bigint,
  key blob, retention int, PRIMARY KEY ((pipeline, topic, partition, bucket), "offset", key));
"""


@dataclass(frozen=True, slots=True)
class World:
    """One campaign's pipeline and what it stands on."""

    place: Place
    kubectl: Kubectl
    nodes: Nodes
    topic: str

    @property
    def pipeline(self) -> Pipeline:
        """The pipeline, by kubectl."""
        return Pipeline(self.kubectl, NAME)

    @property
    def bootstrap(self) -> str:
        """Kafka, as the host reaches it."""
        return self.place.environment.kafka_host

    @property
    def key(self) -> str:
        """The fence row's key."""
        return f"{SCOPE}/{self.place.namespace}/{NAME}"

    def spec(self, **changes: Any) -> Object:
        """Return the pipeline's manifest. `changes` are merged over its spec as a JSON merge patch."""
        base: Mapping[str, Any] = {
            "job": {
                "entrypoint": f"{CODE.stem}:first_release",
                "codeFrom": {"configMapName": _CODE_NAME},
                # Spark's master has no code and ignores the variable.
                "env": [{"name": "LD_PRELOAD", "value": f"{CODE_DIR}/{_LIBRARY}"}],
                "terminationGracePeriodSeconds": 60,
            },
            "source": {"kafka": {"maxRecordsPerBatch": 4000}},
            "sinks": [
                {"name": "records", "cassandra": {"keyspace": self.place.tables, "table": "records"}},
                {
                    "name": "names",
                    "cassandra": {
                        "keyspace": self.place.tables,
                        "table": "names",
                        "purgeIndex": {"retention": "24h"},
                    },
                },
            ],
            "onPoison": {"action": "deadLetter", "failures": 1},
            "restart": {"maxBackoff": "5s", "stallTimeout": "30s"},
            "upgrade": {"rollback": "enabled", "stableAfter": {"commits": 2, "window": "5s"}},
        }
        made = manifest(self.place, name=NAME, topic=self.topic, table="records", **base)
        return {**made, "spec": merged(made["spec"], changes)}

    @contextmanager
    def cassandra(self) -> Iterator[Any]:
        """A session for one look. Raises CassandraDownError."""
        environment = self.place.environment
        address = CassandraAddress(
            host=environment.cassandra_host,
            port=environment.cassandra_port,
            username=environment.cassandra_username,
            password=environment.cassandra_password,
        )
        with session(address) as opened:
            yield opened

    def fence(self, opened: Any) -> FenceRow | None:
        """Return the fence row, read at SERIAL. Raises FenceUnavailable."""
        return read_row(Fence(CassandraFenceTable.over(opened, self.place.fences), self.key), seconds=20)

    def output(self, opened: Any) -> Output:
        """Return what both tables and the dead letters hold."""
        opened.default_fetch_size = 5_000
        tables = self.place.tables
        records = {
            (row.partition, row.offset): Row((row.partition, row.offset), row.id, row.text)
            for row in opened.execute(f'SELECT partition, "offset", id, text FROM {tables}.records')  # noqa: S608
        }
        names = {
            row.name: Row((row.partition, row.offset), row.id, row.text)
            for row in opened.execute(f'SELECT name, partition, "offset", id, text FROM {tables}.names')  # noqa: S608
        }
        letters = opened.execute(f'SELECT partition, "offset" FROM {self.place.fences}.dead_letters')  # noqa: S608
        return Output(records, names, frozenset((row.partition, row.offset) for row in letters))

    def changes(self, opened: Any) -> Sequence[HistoryRow]:
        """Return every change of the fence row that the history has, oldest first."""
        return read_history(opened, self.place.fences, self.key)


def clock_library() -> bytes:
    """Return the library that sets the wall clock of a container by CLOCK_FILE. Raises StepError, CommandError."""
    with tempfile.TemporaryDirectory(prefix="fencepost-campaign-") as folder:
        install(("cc",), Transcript(Path(folder) / "packages.log"))
        compile_library(Path(folder) / _LIBRARY, offset_file=f"/{CLOCK_FILE}")
        return (Path(folder) / _LIBRARY).read_bytes()


@contextmanager
def world(environment: Environment, seed: int) -> Iterator[World]:
    """Make everything but the pipeline; remove it all at the end, the pipeline too."""
    namespace = f"campaign-{seed}"
    keyspaces = namespace.replace("-", "_")
    place = Place(
        environment=environment, namespace=namespace, tables=f"{keyspaces}_tables", fences=f"{keyspaces}_fences"
    )
    made = World(place, Kubectl.of(environment, namespace), Nodes.of(environment), topic=namespace)
    _remove(made)
    try:
        _make(made)
        yield made
    finally:
        _remove(made)


def _make(made: World) -> None:
    environment = made.place.environment
    Topics(made.bootstrap).create(made.topic, PARTITIONS)
    with made.cassandra() as opened:
        run_script(opened, _SCHEMA.format(tables=made.place.tables))
    made.kubectl.run("apply", "--filename=-", text=restricted_namespace(made.place.namespace))
    account = {"username": environment.cassandra_username, "password": environment.cassandra_password}
    made.kubectl.apply(
        {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": SECRET}, "stringData": account},
        {
            "apiVersion": "v1",
            "kind": "ConfigMap",
            "metadata": {"name": _CODE_NAME},
            "data": {CODE.name: CODE.read_text()},
            "binaryData": {_LIBRARY: base64.b64encode(clock_library()).decode()},
        },
    )


def _remove(made: World) -> None:
    """Remove what this campaign, or an earlier one of the same seed, made."""
    if made.kubectl.get("namespace", made.place.namespace) is not None:
        # The pipelines first: a namespace that ends takes the Secrets with it that their clean-up needs.
        made.kubectl.run("delete", KIND, "--all", "--timeout=120s", seconds=130)
        made.kubectl.delete("namespace", made.place.namespace, seconds=120)
    Topics(made.bootstrap).delete(made.topic)

    def dropped() -> bool:
        try:
            with made.cassandra() as opened:
                for keyspace in (made.place.tables, made.place.fences):
                    opened.execute(f"DROP KEYSPACE IF EXISTS {keyspace}")
        except CassandraDownError as error:
            raise AssertionError(str(error)) from error
        return True

    eventually("the keyspaces are dropped", dropped, seconds=60)
