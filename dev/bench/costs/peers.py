"""Fencepost beside Spark's own Structured Streaming: one topic, one transform, one table, one machine, one session.

The contestants run one after the other, and in the reverse order in the next round, so that what else the machine does
falls on all.  Cassandra's table is empty before each, and after its first run each one's rows are compared with what
was produced.  One that fails is a note; what was measured is kept, and a second call resumes from there.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from bench import cpu
from bench.contest import Contestant, Mark, fencepost, run
from bench.options import Journal, Options
from bench.samples import Result, Sample
from bench.stage import build_contestant, clean, make_namespace, source, staged
from demo.scene import Scene
from flights.console import Console
from flights.ledger import Ledger
from flights.reconciliation import reconcile
from harness.pipelines import code, example_file
from testbed.cluster import WORKERS

NAME: Final = "peers"
ROWS: Final = 1_000_000
PER_BATCH: Final = 100_000
ROUNDS: Final = 2
CORES: Final = 2
IMAGE: Final = "fencepost-peer:dev"
POD: Final = "peer"
FOLDER: Final = Path(__file__).parents[1] / "peer"
CEILING: Final = Path(__file__).parents[1] / "ceiling" / "uncommitted.py"


def measure(console: Console, options: Options) -> Result:
    """Work off the same backlog with each contestant, in rounds."""
    rows, rounds = options.rows or ROWS, options.rounds or ROUNDS
    names = options.chosen(list(CONTESTANTS))
    journal = Journal.of(NAME, options, {"rows": rows, "rows per batch": PER_BATCH, "cores": CORES})
    notes: list[str] = []
    left = [
        (number, name)
        for number in range(rounds)
        for name in names[:: 1 if number % 2 == 0 else -1]
        if not journal.has(name, number)
    ]
    if left:
        with staged() as scene:
            feed = source(scene)
            console.line(f"peers: producing {rows:,} rows")
            feed.burst(rows)
            for number, name in left:
                try:
                    found = run(scene, CONTESTANTS[name], rows)
                    wrong = [] if number else differences(scene, feed.ledger)
                except Exception as error:  # noqa: BLE001 - the others are measured nevertheless
                    notes.append(f"{name}, round {number + 1}: not measured: {error}")
                    console.line(f"peers: {notes[-1]}")
                else:
                    console.line(f"peers: round {number + 1}, {name}: {found.rows_per_second:,.0f} rows/s")
                    journal.add(
                        name, number, rows_per_second=found.rows_per_second, spent=dict(found.spent), wrong=wrong
                    )
                    result(journal, rounds, notes).save(options.into)
                clean(scene)
    return result(journal, rounds, notes)


def result(journal: Journal, rounds: int, notes: list[str]) -> Result:
    """Return all that is known so far of every contestant."""
    known = {name: [line for line in journal.lines(name) if line["round"] < rounds] for name in CONTESTANTS}
    found = {name: lines for name, lines in known.items() if lines}
    samples = [Sample(name, "rows/s", [line["rows_per_second"] for line in lines]) for name, lines in found.items()]
    for name, lines in found.items():
        of_role = {role: [line["spent"].get(role, 0.0) for line in lines] for role in lines[0]["spent"]}
        samples += cpu.samples(name, of_role)
    wrong = [f"{name}: {text}" for name, lines in found.items() for line in lines for text in line["wrong"]]
    return Result(NAME, samples, {**journal.conditions, "rounds": rounds}, [*ratios(found), *wrong, *notes])


def ratios(found: Mapping[str, list[dict[str, Any]]]) -> list[str]:
    """Return Fencepost's rows per second over each peer's, paired within a round."""
    lines: list[str] = []
    for ours in (name for name in found if name.startswith("Fencepost")):
        for theirs in (name for name in found if not name.startswith("Fencepost")):
            peer = {line["round"]: line["rows_per_second"] for line in found[theirs]}
            paired = [a["rows_per_second"] / peer[a["round"]] for a in found[ours] if a["round"] in peer]
            if paired:
                lines.append(f"{ours} / {theirs}: {', '.join(f'{ratio:.2f}' for ratio in paired)}")
    return lines


def differences(scene: Scene, ledger: Ledger) -> list[str]:
    """Return how the table differs from what was produced; nothing when each row is there once, and right."""
    report = reconcile(scene.cassandra, scene.tables[0], ledger)
    return report.lines() if report.missing or report.doubled or report.wrong else []


def peer_mark(line: str) -> Mark | None:
    """Read a line of the peer's log."""
    if not line.startswith("BATCH "):
        return None
    batch = json.loads(line.removeprefix("BATCH "))
    return Mark(float(batch["ended"]), int(batch["records"]))


def structured_streaming(*, tuned: bool) -> Contestant:
    """Return the peer, with the connector's default settings or tuned ones."""

    def start(scene: Scene, rows: int) -> None:
        build_contestant(FOLDER, IMAGE)
        make_namespace(scene)
        scene.kubectl.apply(code(), _peer(scene, rows, tuned=tuned))

    return Contestant(start=start, pod=f"app={POD}", mark=peer_mark, roles={"driver": f"app={POD}"})


def pipeline(*, workers: int = 1, entrypoint: str | None = None, committing: bool = True) -> Contestant:
    """Return the departures example, changed as little as it takes."""

    def start(scene: Scene, rows: int) -> None:  # noqa: ARG001 - the topic ends where it ends
        make_namespace(scene)
        job: dict[str, Any] = {"entrypoint": entrypoint} if entrypoint else {}
        if not committing:
            scene.kubectl.apply(ceiling_code())
            job["codeFrom"] = {"configMapName": ceiling_code()["metadata"]["name"]}
        scene.apply(
            {
                "job": job,
                "cluster": {"workers": workers},
                "source": {"kafka": {"maxRecordsPerBatch": PER_BATCH, "targetBatchDuration": "5m"}},
                # Without commits the operator sees no progress.
                **({} if committing else {"restart": {"stallTimeout": "1h"}}),
            }
        )

    return fencepost(start)


ARROW: Final = "departures_arrow:transform"
CONTESTANTS: Final[Mapping[str, Contestant]] = {
    "Structured Streaming": structured_streaming(tuned=False),
    "Structured Streaming, tuned": structured_streaming(tuned=True),
    "Fencepost": pipeline(),
    "Fencepost, 2 workers": pipeline(workers=2),
    "Fencepost, record batches": pipeline(entrypoint=ARROW),
    "Fencepost, record batches, 2 workers": pipeline(entrypoint=ARROW, workers=2),
    "Fencepost without any commit": pipeline(entrypoint="uncommitted:transform", committing=False),
    "Fencepost, record batches without any commit": pipeline(entrypoint="uncommitted:record_batches", committing=False),
}


def ceiling_code() -> dict[str, Any]:
    """Return the ConfigMap of the example that does not commit."""
    modules = ("departures.py", "departures_arrow.py")
    return {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": "uncommitted-code"},
        "data": {
            CEILING.name: CEILING.read_text(),
            **{module: example_file("departures", module) for module in modules},
        },
    }


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
