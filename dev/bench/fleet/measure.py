"""`python -m bench fleet --pipelines N`: what N pipelines through which records flow cost the operator.

The API server, its controllers, Cassandra, Kafka, Helm and the operator are real.  Nodes and drivers are stand-ins:
pods are ready at once and run nothing, and one process commits for all drivers through the real fence.  What else runs
on the machine delays things, so CPU time and requests are the figures to compare.
"""

from __future__ import annotations

import json
import random
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from bench.fleet.audit import POLICY, Audit, is_write
from bench.fleet.drivers import Drivers, Topics
from bench.fleet.nodes import COMPONENT, Nodes
from bench.fleet.operator import NAMESPACE, Operator
from bench.fleet.requests import Object, Requests
from bench.options import Options
from bench.samples import Result, Sample
from fencepost.contract import CassandraEndpoint
from fencepost.fence.cassandra.table import CassandraFenceTable
from fencepost_operator.api import GROUP, KIND, PLURAL, VERSION
from flights.console import Console
from flights.topics import Topics as KafkaTopics
from harness.kubernetes.control_plane import control_plane
from harness.waiting import eventually
from testbed.environment import Environment, load

NAME: Final = "fleet"
PIPELINES: Final = 100
TENANTS: Final = 20
"""Namespaces among which the pipelines are spread."""
TOPICS: Final = 10
COMMIT_EVERY: Final = 10.0
KEYSPACE: Final = "fencepost_fleet"
SETTLE: Final = 60.0
WINDOW: Final = 120.0
SLICE: Final = 10.0
KILLS: Final = 50
_LABEL: Final = f"{GROUP}/pipeline"
_EPOCH: Final = f"{GROUP}/epoch"
_SEED: Final = 1


@dataclass(slots=True)
class Jobs:
    """When the Job of each run was seen, by (namespace, pipeline, epoch)."""

    requests: Requests
    seen: dict[tuple[str, str, int], float] = field(default_factory=dict)
    _over: threading.Event = field(default_factory=threading.Event)

    @contextmanager
    def watched(self) -> Iterator[None]:
        """Watch them while the block runs."""
        threading.Thread(target=self._watch, name="jobs", daemon=True).start()
        try:
            yield
        finally:
            self._over.set()

    def _watch(self) -> None:
        for kind, job in self.requests.follow("/apis/batch/v1/jobs", _LABEL, self._over):
            metadata = job["metadata"]
            if kind == "ADDED":
                epoch = int(metadata["labels"][_EPOCH])
                self.seen.setdefault((metadata["namespace"], metadata["labels"][_LABEL], epoch), time.monotonic())


@dataclass(frozen=True, slots=True, kw_only=True)
class Fleet:
    """All parts of a fleet that runs."""

    console: Console
    requests: Requests
    operator: Operator
    nodes: Nodes
    drivers: Drivers
    jobs: Jobs
    audit: Audit

    @classmethod
    @contextmanager
    def at_work(cls, environment: Environment, console: Console) -> Iterator[Fleet]:
        """Bring up everything but the pipelines."""
        with ExitStack() as stack:
            folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="fleet-")))
            policy, log = folder / "policy.json", folder / "audit.log"
            policy.write_text(json.dumps(POLICY))
            audited = (f"--audit-policy-file={policy}", f"--audit-log-path={log}")
            plane = stack.enter_context(control_plane(*audited))
            requests = Requests.to(plane)
            topics = Topics(environment.kafka_host, tuple(f"fleet-{number}" for number in range(TOPICS)))
            for name in topics.names:
                KafkaTopics(environment.kafka_host).create(name, 1)
            table = stack.enter_context(_table(environment))
            drivers = Drivers(requests, table, topics, console, COMMIT_EVERY)
            nodes = Nodes(requests, console, drivers.start, drivers.end)
            _make_namespaces(requests, environment)
            stack.enter_context(topics.flowing())
            stack.enter_context(drivers.at_work())
            stack.enter_context(nodes.at_work())
            jobs = Jobs(requests)
            stack.enter_context(jobs.watched())
            operator = stack.enter_context(Operator.at_work(plane, folder))
            yield cls(
                console=console,
                requests=requests,
                operator=operator,
                nodes=nodes,
                drivers=drivers,
                jobs=jobs,
                audit=Audit(log),
            )

    def apply(self, count: int, environment: Environment) -> float:
        """Create so many pipelines at once; return the seconds until each has a Job."""
        began = time.monotonic()
        with ThreadPoolExecutor(8) as pool:
            list(pool.map(lambda number: self._create(manifest(number, environment)), range(count)))
        limit = 120 + 10.0 * count
        eventually(f"{count} Jobs", lambda: len(self.jobs.seen) >= count, seconds=limit, pause=0.2)
        took = max(self.jobs.seen.values()) - began
        eventually(f"{count} claims", lambda: self.drivers.claimed >= count, seconds=limit, pause=0.5)
        return took

    def _create(self, body: Object) -> None:
        self.requests.ask("POST", f"/apis/{GROUP}/{VERSION}/namespaces/{body['metadata']['namespace']}/{PLURAL}", body)

    def kill(self, count: int) -> list[float]:
        """Kill so many drivers, one after another; return the seconds until each one's next Job was there."""
        pods = self.requests.ask("GET", f"/api/v1/pods?labelSelector={COMPONENT}=driver")["items"]
        chosen = random.Random(_SEED).sample(pods, min(count, len(pods)))
        found: list[float] = []
        for pod in chosen:
            metadata = pod["metadata"]
            run = (metadata["namespace"], metadata["labels"][_LABEL], int(metadata["labels"][_EPOCH]) + 1)
            began = time.monotonic()
            self.nodes.kill(pod)
            eventually(f"the Job of {run}", lambda run=run: run in self.jobs.seen, seconds=120, pause=0.01)  # type: ignore[misc]
            found.append(self.jobs.seen[run] - began)
        return found


def measure(console: Console, options: Options) -> Result:
    """Apply the pipelines, look at the operator while records flow, then kill drivers, and the operator itself."""
    environment, count = load(), options.pipelines or PIPELINES
    with Fleet.at_work(environment, console) as fleet:
        fleet.audit.new()
        before, passes = fleet.operator.usage(), sum(fleet.operator.passes().values())
        took = fleet.apply(count, environment)
        after, asked = fleet.operator.usage(), fleet.audit.new()
        passes = sum(fleet.operator.passes().values()) - passes
        console.line(f"fleet: {count} pipelines have Jobs after {took:.0f} s; settling for {SETTLE:.0f} s")
        started = [
            Sample("applied at once to all Jobs created", "s", [took]),
            Sample("CPU per pipeline's start, operator", "ms", [1000 * (after.own - before.own) / count]),
            Sample("CPU per pipeline's start, Helm", "ms", [1000 * (after.started - before.started) / count]),
            Sample("API requests per pipeline's start", "", [asked.total() / count]),
            Sample("passes per pipeline's start", "", [passes / count]),
        ]
        for sample in started:
            console.line(f"fleet: {sample.name}: {sample.values[0]:,.1f} {sample.unit}")
        time.sleep(SETTLE)
        flowing, notes = _flowing(fleet, count)
        killed = Sample("killed driver to Job created", "s", fleet.kill(KILLS))
        console.line("fleet: the operator is killed and started again")
        runs = len(fleet.jobs.seen)
        restarted = Sample("operator killed and started to all reconciled", "s", [fleet.operator.restart(count)])
        restarted_cpu = Sample("CPU of a pipeline's first pass", "ms", [1000 * fleet.operator.usage().own / count])
        notes = [f"API requests of all starts: {_listed(asked)}", *notes]
        notes.append(f"{len(fleet.jobs.seen) - runs} runs were started by the restart of the operator.")
    conditions = {"pipelines": count, "namespaces": TENANTS, "commit every s": COMMIT_EVERY, "workers": 1}
    return Result(NAME, [*started, *flowing, killed, restarted, restarted_cpu], conditions, notes)


def _flowing(fleet: Fleet, count: int) -> tuple[list[Sample], list[str]]:
    """Look at the operator for a while; each slice of that is one value."""
    operator, slices = fleet.operator, round(WINDOW / SLICE)
    found: dict[tuple[str, str], list[float]] = {}
    requests, outcomes = Counter[str](), Counter[str]()
    fleet.audit.new()
    usage, passes, at = operator.usage(), operator.passes(), time.monotonic()
    for _ in range(slices):
        time.sleep(SLICE)
        seconds, at = time.monotonic() - at, time.monotonic()
        new, used, done = fleet.audit.new(), operator.usage(), operator.passes()
        made = {outcome: total - passes.get(outcome, 0.0) for outcome, total in done.items()}
        figures = {
            ("CPU", "cores"): (used.own - usage.own) / seconds,
            ("CPU per pass", "ms"): 1000 * (used.own - usage.own) / max(1.0, sum(made.values())),
            ("passes", "/s"): sum(made.values()) / seconds,
            ("API requests", "/s"): new.total() / seconds,
            ("API requests per pipeline", "/s"): new.total() / seconds / count,
            ("writes", "/s"): sum(number for name, number in new.items() if is_write(name)) / seconds,
            ("memory", "MiB"): used.memory,
            ("scrape of /metrics", "ms"): operator.scrape()[0],
        }
        for name, figure in figures.items():
            found.setdefault(name, []).append(figure)
        requests, usage, passes = requests + new, used, done
        outcomes.update(made)
    samples = [Sample(name, unit, values) for (name, unit), values in found.items()]
    samples.append(Sample("memory, most", "MiB", [usage.most_memory]))
    notes = [
        f"{slices * SLICE:.0f} s, {fleet.drivers.commits} commits so far. Passes: {_listed(outcomes)}",
        f"API requests: {_listed(requests)}",
    ]
    return samples, notes


def _listed(counts: Counter[str]) -> str:
    return ", ".join(f"{name} {number:.0f}" for name, number in counts.most_common())


def manifest(number: int, environment: Environment) -> Object:
    """Return one pipeline of the fleet."""
    connection = {
        "contactPoints": [environment.cassandra_host],
        "port": environment.cassandra_port,
        "keyspace": KEYSPACE,
        "credentialsFrom": {"secretName": "cassandra"},
    }
    return {
        "apiVersion": f"{GROUP}/{VERSION}",
        "kind": KIND,
        "metadata": {"name": f"fleet-{number}", "namespace": f"tenant-{number % TENANTS}"},
        "spec": {
            "job": {"image": "fleet", "entrypoint": "fleet:transform"},
            "source": {"kafka": {"bootstrapServers": environment.kafka_host, "topics": [f"fleet-{number % TOPICS}"]}},
            "sinks": [{"name": "rows", "cassandra": {"keyspace": KEYSPACE, "table": "rows"}}],
            "checkpoint": {"cassandra": connection},
            "cluster": {"workers": 1},
        },
    }


def _make_namespaces(requests: Requests, environment: Environment) -> None:
    login = {"username": environment.cassandra_username, "password": environment.cassandra_password}
    for name in (NAMESPACE, *(f"tenant-{number}" for number in range(TENANTS))):
        requests.ask("POST", "/api/v1/namespaces", {"metadata": {"name": name}})
        secret: dict[str, Any] = {"metadata": {"name": "cassandra"}, "stringData": login}
        requests.ask("POST", f"/api/v1/namespaces/{name}/secrets", secret)


@contextmanager
def _table(environment: Environment) -> Iterator[CassandraFenceTable]:
    """Yield the fence's table, which the operator makes; the keyspace is dropped before and afterwards."""
    table = CassandraFenceTable.connect(
        CassandraEndpoint(contact_points=(environment.cassandra_host,), port=environment.cassandra_port),
        keyspace=KEYSPACE,
        credentials=(environment.cassandra_username, environment.cassandra_password),
    )
    table.session.execute(f"DROP KEYSPACE IF EXISTS {KEYSPACE}")
    try:
        yield table
    finally:
        table.session.execute(f"DROP KEYSPACE IF EXISTS {KEYSPACE}", timeout=60)
        table.close()
