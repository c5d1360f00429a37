"""Fencepost beside Spark's own Structured Streaming: one topic, one transform, one table, one machine, one session.

The contestants run one after the other, and in the reverse order in the next round, so that what else the machine does
falls on all.  Each is measured from its first finished batch to its last: starting is not what is compared here.
Cassandra's table is empty and its files are flushed and compacted before each.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any, Final

from bench import cpu
from bench.backlog import begin_again
from bench.figures import Result, Sample
from bench.stage import committed, source, staged, wait_for_commit
from demo.scene import Scene
from flights.console import Console
from flights.history import commits
from flights.reconciliation import reconcile
from harness.pipelines import code
from harness.waiting import eventually
from testbed.cluster import WORKERS
from testbed.engine import Docker
from testbed.home import Home
from testbed.images import load_one
from testbed.process import Transcript

ROWS: Final = 1_000_000
PER_BATCH: Final = 100_000
ROUNDS: Final = 2
CORES: Final = 2
SECONDS: Final = 900.0
IMAGE: Final = "fencepost-peer:dev"
POD: Final = "peer"
ROLE: Final = "driver"
FOLDER: Final = Path(__file__).with_name("peer")


@dataclass(frozen=True, slots=True)
class Run:
    """One contestant's run: rows per second, and CPU-µs per row by role."""

    rows_per_second: float
    spent: Mapping[str, float]


def measure(console: Console, *, rows: int = ROWS, rounds: int = ROUNDS) -> Result:
    """Work off the same backlog with each contestant, in rounds."""
    build(console)
    found: dict[str, list[Run]] = {name: [] for name in CONTESTANTS}
    notes: list[str] = []
    with staged() as scene:
        feed = source(scene)
        console.line(f"peers: producing {rows:,} rows")
        feed.burst(rows)
        for number in range(rounds):
            order = list(CONTESTANTS)[:: 1 if number % 2 == 0 else -1]
            for name in order:
                run = CONTESTANTS[name](scene, rows)
                found[name].append(run)
                console.line(f"peers: round {number + 1}, {name}: {run.rows_per_second:,.0f} rows/s")
                report = reconcile(scene.cassandra, scene.tables[0], feed.ledger)
                if report.missing or report.doubled or report.wrong:
                    notes.append(f"{name}, round {number + 1}: {'; '.join(report.lines())}")
                clean(scene)
    samples = [Sample(name, "rows/s", [run.rows_per_second for run in runs]) for name, runs in found.items()]
    samples += [
        sample
        for name, runs in found.items()
        for sample in cpu.samples(name, {role: median(r.spent.get(role, 0) for r in runs) for role in runs[0].spent})
    ]
    return Result(
        "peers",
        samples,
        {"rows": rows, "rows per batch": PER_BATCH, "rounds": rounds, "cores": CORES},
        [*ratios(found), *notes],
    )


def ratios(found: Mapping[str, list[Run]]) -> list[str]:
    """Return Fencepost's rows per second over each peer's, paired within a round."""
    lines: list[str] = []
    for ours in (name for name in found if name.startswith("Fencepost")):
        for theirs in (name for name in found if not name.startswith("Fencepost")):
            paired = [a.rows_per_second / b.rows_per_second for a, b in zip(found[ours], found[theirs], strict=True)]
            lines.append(f"{ours} / {theirs}: {', '.join(f'{ratio:.2f}' for ratio in paired)}")
    return lines


def build(console: Console) -> None:
    """Build the peer's image and load it into the nodes that run Spark."""
    console.line("peers: building the peer's image")
    home = Home.of_user()
    log = Transcript(home.logs / "peer-image.log")
    Docker(home).build(FOLDER, FOLDER / "Dockerfile", "peer", [IMAGE], log)
    load_one(home, IMAGE, log)


def structured_streaming(*, tuned: bool) -> Callable[[Scene, int], Run]:
    """Return a run of the peer, with the connector's default settings or tuned ones."""

    def run(scene: Scene, rows: int) -> Run:
        scene.kubectl.run("create", "namespace", scene.kubectl.namespace)
        scene.kubectl.run("label", "namespace", scene.kubectl.namespace, "fencepost.test/made-by=demo")
        scene.kubectl.apply(code(), _peer(scene, rows, tuned=tuned))
        eventually("the peer's first batch", lambda: batches(scene), seconds=SECONDS, pause=0.2)
        before = cpu.usage(scene, {ROLE: f"app={POD}"})
        eventually("the peer's last batch", lambda: "DONE" in _log(scene), seconds=SECONDS, pause=0.5)
        spent = cpu.usage(scene, {ROLE: f"app={POD}"})
        done = batches(scene)
        measured = rows - PER_BATCH
        return Run(measured / (done[-1]["ended"] - done[0]["ended"]), cpu.per_row(before, spent, measured))

    return run


def fencepost(*, workers: int) -> Callable[[Scene, int], Run]:
    """Return a run of the example as it is."""

    def run(scene: Scene, rows: int) -> Run:
        scene.apply({"cluster": {"workers": workers}, "source": {"kafka": {"maxRecordsPerBatch": PER_BATCH}}})
        warm = wait_for_commit(scene, seconds=SECONDS)
        before = cpu.usage(scene)
        wait_for_commit(scene, past=rows - 1, seconds=SECONDS)
        spent = cpu.usage(scene)
        done = [commit for _, commit in commits(scene.whole_history())]
        first, last = done[0], done[-1]
        if first.written_at is None or last.written_at is None:
            raise ValueError("the fence's history has no times")
        return Run(
            (rows - sum(first.offsets.values())) / (last.written_at - first.written_at) * 1e6,
            cpu.per_row(before, spent, rows - committed(warm)),
        )

    return run


CONTESTANTS: Final[Mapping[str, Callable[[Scene, int], Run]]] = {
    "Structured Streaming": structured_streaming(tuned=False),
    "Structured Streaming, tuned": structured_streaming(tuned=True),
    "Fencepost": fencepost(workers=1),
}


def clean(scene: Scene) -> None:
    """Remove what a contestant left; the topic stays."""
    if scene.pipeline() is not None:
        begin_again(scene)
    scene.kubectl.run("delete", "namespace", scene.kubectl.namespace, "--ignore-not-found", seconds=180)
    for table in scene.tables:
        scene.cassandra.execute(f"TRUNCATE {table}")


def batches(scene: Scene) -> list[dict[str, float]]:
    """Return what the peer has told of its batches so far."""
    return [json.loads(line.removeprefix("BATCH ")) for line in _log(scene).splitlines() if line.startswith("BATCH ")]


def _log(scene: Scene) -> str:
    phase = (scene.kubectl.get("pod", POD) or {}).get("status", {}).get("phase")
    return scene.kubectl.run("logs", POD, "--tail=-1") if phase in {"Running", "Succeeded", "Failed"} else ""


def _peer(scene: Scene, rows: int, *, tuned: bool) -> dict[str, Any]:
    there, table = scene.environment, scene.tables[0]
    given = {
        "kafka": there.kafka_cluster,
        "topic": scene.topics[0],
        "cassandra": there.cassandra_cluster,
        "port": there.cassandra_cluster_port,
        "keyspace": table.keyspace,
        "table": table.name,
        "per_batch": PER_BATCH,
        "total": rows,
        "cores": CORES,
        "tuned": tuned,
    }
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": POD, "labels": {"app": POD}},
        "spec": {
            "restartPolicy": "Never",
            "nodeName": WORKERS[-1],
            "containers": [
                {
                    "name": POD,
                    "image": IMAGE,
                    "imagePullPolicy": "Never",
                    "args": ["python", "/opt/peer/structured_streaming.py", json.dumps(given)],
                    "env": [
                        {"name": "CASSANDRA_USERNAME", "value": there.cassandra_username},
                        {"name": "CASSANDRA_PASSWORD", "value": there.cassandra_password},
                    ],
                    "volumeMounts": [{"name": "code", "mountPath": "/opt/fencepost/code"}],
                }
            ],
            "volumes": [{"name": "code", "configMap": {"name": code()["metadata"]["name"]}}],
        },
    }
