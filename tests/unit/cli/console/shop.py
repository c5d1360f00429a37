"""A shop's pipelines as a user might see them: forty in the fleet, and one that has just recovered from a failure."""

from __future__ import annotations

import json
import math
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

from fencepost.fence import Fence, FenceRow, Starting
from fencepost.fence.history import Change, change, hour_of
from fencepost.fence.memory import MemoryFenceTable
from fencepost_cli.ports import Related
from unit.cli.console.bodies import Lists, pipeline
from unit.cli.console.test_pipeline_page import run
from unit.cli.world import ROW, dead_letter

STEP = timedelta(seconds=10)
COMMITS = 330
FAILS_AT = 200
TEAMS = ("billing", "catalog", "payments", "shop", "web")
NAMES = ("clicks", "invoices", "orders", "prices", "refunds", "sessions", "stock", "visits")


def shop() -> Lists:
    """The fleet, and shop/orders with an hour of history."""
    now = datetime.now(UTC)
    lists = Lists([fleet_member(number, now) for number in range(40)])
    world = lists.world
    rows = story()
    world.row, world.records = rows[-1], records(rows, now)
    world.body = {**orders(now), "spec": world.body["spec"]}
    world.related_objects[Related.TRIALS] = [trial(now, **each) for each in TRIALS]
    world.related_objects[Related.REWINDS] = [rewind(now)]
    events = [("RunFailed", "Run 1 failed: OutOfMemory, exit code 137"), ("BackingOff", "1 run failed in a row")]
    world.related_objects[Related.EVENTS] = [
        {"type": "Warning", "reason": reason, "message": message, "count": 1}
        | {"lastTimestamp": (now - STEP * (COMMITS - FAILS_AT - 2)).isoformat()}
        for reason, message in events
    ]
    world.log_text = "\n".join(json.dumps(line(number, now)) for number in range(30))
    error = "KeyError: 'price' in transform, job.py line 31"
    for offset in (120_417, 120_980, 131_006):
        world.keep(dead_letter("orders", offset, value=b'{"order": 7, "items": []}', error=error))
    return lists


TRIALS: tuple[dict[str, Any], ...] = (
    {
        "name": "orders-cents", "hours": 1, "phase": "Running", "rows": {"compared": 1_204_331, "equal": 1_204_331},
        "message": "1,204,331 rows compared, 61 % of the records",
    },
    {
        "name": "orders-round-half-up", "hours": 20, "phase": "Completed",
        "rows": {"compared": 2_010_556, "equal": 2_010_544, "changed": 12, "missing": 0},
        "message": "2,010,556 rows compared: 12 differ",
        "samples": [
            {"sink": "orders", "kind": "Changed", "key": key, "columns": "amount"}
            for key in ("topic=orders, partition=0, offset=118204", "topic=orders, partition=0, offset=119377")
        ],
        "promotion": {"state": "NotMet", "message": "12 rows changed, and promoteWhen allows 0"},
    },
    {
        "name": "orders-spark-4-1", "hours": 68, "phase": "Completed",
        "rows": {"compared": 1_884_020, "equal": 1_884_020, "missing": 0},
        "message": "1,884,020 rows compared: all are equal", "promotion": {"state": "Promoted"},
    },
)  # fmt: skip


def trial(now: datetime, *, name: str, hours: int, rows: dict[str, int], **status: Any) -> dict[str, Any]:
    created = (now - timedelta(hours=hours)).isoformat()
    spec = {"pipeline": "orders", "job": {"image": "registry.example/orders:13"}, "since": {"duration": "24h"}}
    return {
        "metadata": {"name": name, "namespace": "shop", "uid": name, "creationTimestamp": created},
        "spec": {**spec, "promoteWhen": {"changedRows": 0}},
        "status": {"rows": {"changed": 0, "added": 0, **rows}, "complete": True, **status},
    }


def rewind(now: datetime) -> dict[str, Any]:
    created = (now - timedelta(days=2)).isoformat()
    steps = ("Count", "Stop", "BackUp", "Purge", "SetOffsets", "Resume", "Check")
    return {
        "metadata": {"name": "orders-before-the-bad-price", "namespace": "shop", "uid": "r"}
        | {"creationTimestamp": created},
        "spec": {"pipeline": "orders", "to": {"timestamp": created}, "deleteOutput": True},
        "status": {
            "phase": "Completed", "message": "The pipeline reads again from orders/0@41200; 88,310 rows were deleted",
            "steps": [{"name": name, "state": "Done", "message": "", "startedAt": created} for name in steps],
        },
    }  # fmt: skip


def fleet_member(number: int, now: datetime) -> dict[str, Any]:
    team, name = TEAMS[number % 5], NAMES[number // 5]
    kinds: dict[int, dict[str, Any]] = {
        3: {"state": "Stalled", "ready": "False", "message": "PoisonRecord: orders/4@88172 fails alone"},
        11: {
            "state": "Restarting",
            "ready": "False",
            "message": "Cassandra does not answer; the next run starts in 12 s",
        },
        17: {"state": "Suspended", "message": "spec.suspend is true"},
        23: {"state": "CatchingUp", "message": "Reads a backlog, 4 minutes are left"},
        31: {
            "state": "Upgrading",
            "ready": "False",
            "message": "The driver finishes its batch before the new code starts",
        },
    }
    kind = kinds.get(number, {"message": "Batches are committed"})
    busy = number % 7 + 1
    figures = {"lag": 2_400_000 if number == 23 else busy * 37, "epoch": busy + 1, "restarts": busy // 3}
    rate = {} if number in {3, 11, 17} else {"throughput": {"recordsPerSecond": busy * 1_310}}
    body = pipeline(f"{name}", team, **{"state": "Running", **kind, **figures, **rate})
    body["metadata"]["creationTimestamp"] = (now - timedelta(days=3 + number)).isoformat()
    return body


def orders(now: datetime) -> dict[str, Any]:
    since = (now - STEP * (COMMITS - FAILS_AT)).isoformat()
    failure = {
        "count": 1, "epoch": 1, "at": since, "reason": "OutOfMemory", "exitCode": 137,
        "message": "The driver's container used 512Mi, its limit, and was killed",
        "remedy": "raise job.memory, or lower maxRecordsPerBatch",
        "log": ["plan of version 201: 41,200 records", "writing orders", "java.lang.OutOfMemoryError: Java heap space"],
    }  # fmt: skip
    found = pipeline(
        message="Batches are committed", epoch=2, lag=260, restarts=1, failure=failure, run=run("orders-run-2-x7d2q"),
        throughput={"recordsPerSecond": 1310, "estimatedCatchUp": "0s"}, deadLetters={"count": 3},
        committed={"version": 340, "at": now.isoformat()}, cluster={
            "release": "orders", "generation": 1, "configHash": "h", "requestedAt": since, "workers": 1,
            "readyWorkers": 1,
        },
    )  # fmt: skip
    found["status"]["conditions"][0]["lastTransitionTime"] = since
    return found


def story() -> list[FenceRow]:
    """Two runs through the real protocol: a day's waves, and a backlog after the failure."""
    table = MemoryFenceTable()
    fence = Fence(table, ROW)
    row, at = fence.create("cluster/uid"), 100_000
    for driver, commits in (("3f2c9a1e-77d0", range(FAILS_AT)), ("b81d04c2-5e19", range(FAILS_AT, COMMITS))):
        row = claimed(fence, row, driver, at)
        for number in commits:
            ends = {"orders/0": row.planned["orders/0"] + lag_of(number)}
            moved = row.planned["orders/0"] - row.offsets["orders/0"]
            planned = {"orders/0": row.planned["orders/0"] + records_of(number)}
            row = fence.commit(row, offsets=row.planned, planned=planned, log_ends=ends, records=moved, duration_ms=900)
    return table.history


def claimed(fence: Fence, row: FenceRow, driver: str, at: int) -> FenceRow:
    taken = fence.take_over(row, owner="cluster/uid")
    start = Starting(
        offsets=dict(row.offsets) or {"orders/0": at}, planned=dict(row.planned) or {"orders/0": at + records_of(0)},
        topic_ids={"orders": "id"}, log_ends={"orders/0": at},
    )  # fmt: skip
    code = "registry.example/orders:12 job:transform"
    return fence.claim(epoch=taken.epoch, driver=driver, code=code, start=lambda _: start)


def records_of(number: int) -> int:
    wave = int(9_000 + 4_000 * math.sin(number / 25))
    return wave * 2 if FAILS_AT <= number < FAILS_AT + 40 else wave


def lag_of(number: int) -> int:
    late = number - FAILS_AT
    return 400 + number % 7 * 60 + (max(0, 40 - late) * 9_000 if late >= 0 else 0)


def records(rows: list[FenceRow], now: datetime) -> list[Change]:
    found, before = list[Change](), None
    for number, row in enumerate(rows):
        at = now - STEP * (len(rows) - 1 - number)
        same_hour = number > 0 and hour_of(at - STEP) == hour_of(at)
        found.append(replace(change(before if same_hour else None, row, at), written_at=int(at.timestamp() * 1e6)))
        before = row
    return found


def line(number: int, now: datetime) -> dict[str, Any]:
    write = 480 + number * 37 % 300
    phases = {"plan": 24, "record": 18, "transform": 40, "job": write, "write": write + 40, "commit": 31}
    return {
        "time": (now - STEP * (30 - number)).isoformat(), "level": "info", "message": "committed",
        "version": 310 + number, "records": 9_000 + number * 311 % 4_000, "lag": 200 + number * 97 % 300,
        "ms": {**phases, "total": sum(phases.values()) - phases["write"] + 22},
    }  # fmt: skip
