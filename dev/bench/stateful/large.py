"""Gigabytes of state: from SIGKILL of the driver to the next commit, with the worker's files and without."""

from __future__ import annotations

import os
import random
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from typing import Any, Final

from bench.contest import RUN_SECONDS
from bench.delays.recovery import STEPS, log_lines, recoveries
from bench.producing import produce
from bench.samples import Sample
from bench.stage import wait_for_commit
from demo.scene import Killed, Scene
from flights.console import Console
from flights.topics import Topics
from harness.kubernetes.kubectl import KubectlError

TOPIC: Final = "bench-stateful-large"
PARTITIONS: Final = 4
KEYS: Final = 1_000_000
"""Of a gigabyte."""
SIZE: Final = 1_000
"""Bytes of a value, which is the state of its key."""
PER_BATCH: Final = 50_000
RATE: Final = 200.0
"""Records per second while drivers are killed."""
STEADY_SECONDS: Final = 5.0
SETTLE_SECONDS: Final = 75.0
"""Until the maintenance, which runs each minute, has stored a snapshot of all that was read."""
WORKER: Final = "streaming.fencepost.dev/component=worker"
CACHE: Final = "/tmp/state"  # noqa: S108 - the pod's scratch volume
LOCAL: Final = "files of the worker"
REMOTE: Final = "files of Cassandra"


def measure(scene: Scene, console: Console, gigabytes: int, *, image: str | None) -> list[Sample]:
    """Fill the state, then kill drivers under load: with its files on the worker, and after they were taken away.

    Disks need about ten times the state: Kafka's log, the chunks with what compactions replaced, and the copies of
    the worker beside RocksDB's own files.
    """
    Topics(scene.environment.kafka_host).create(TOPIC, PARTITIONS)
    keys = gigabytes * KEYS
    try:
        console.line(f"stateful: producing {keys:,} records of {SIZE:,} bytes")
        produce(scene.environment.kafka_host, TOPIC, map(_record, range(keys)))
        return _measured(scene, console, gigabytes, image=image)
    finally:
        Topics(scene.environment.kafka_host).delete(TOPIC)


def _measured(scene: Scene, console: Console, gigabytes: int, *, image: str | None) -> list[Sample]:
    keys = gigabytes * KEYS
    schedule = f"{keys // PER_BATCH}x{PER_BATCH},1x{PER_BATCH}"
    job: dict[str, Any] = {
        "args": ["large", schedule, "fenced"],
        "scratchSize": f"{5 + 3 * gigabytes}Gi",
        **({"image": image} if image else {}),
    }
    room = {"maxBytes": f"{3 * gigabytes}Gi"}
    scene.apply({"job": job, "state": room, "source": {"kafka": {"topics": [TOPIC]}}})
    wait_for_commit(scene, past=keys - 1, seconds=gigabytes * RUN_SECONDS)
    with flowing(scene.environment.kafka_host, keys):
        _settle(scene, console)
        found, memory = {}, []
        for where, before, kills in ((LOCAL, _nothing, 10), (REMOTE, _forget, 5)):

            def stop(before: Callable[[Scene], None] = before) -> Killed:
                time.sleep(STEADY_SECONDS)
                memory.append(_resident_bytes(scene) / 2**20)
                before(scene)
                return scene.signal_driver("KILL")

            found[f", {where}"], _ = recoveries(f"stateful: {where}", scene, console, stop, times=kills)
    return [
        *(
            Sample(f"{name}{suffix}", "s", [span for one in all_ if (span := one.between(*ends)) is not None])
            for suffix, all_ in found.items()
            for name, *ends in (
                (f"{gigabytes} GB, kill to commit", "killed", "committed"),
                *((f"{gigabytes} GB, {step}", first, last) for step, first, last, _ in STEPS),
            )
        ),
        Sample(f"{gigabytes} GB, state in Cassandra", "MiB", [_state_bytes(scene) / 2**20]),
        Sample(f"{gigabytes} GB, worker's memory", "MiB", memory),
    ]


def _settle(scene: Scene, console: Console) -> None:
    """Wait until the files of the state have a snapshot."""
    time.sleep(SETTLE_SECONDS)
    console.line(f"stateful: the state has {_state_bytes(scene) / 2**20:,.0f} MiB")


def _state_bytes(scene: Scene) -> int:
    size = 0
    row = scene.fence()
    lines = scene.kubectl.run("logs", f"job/{scene.name}-run-{row.epoch if row else 1}", "--tail=50")
    for entry in log_lines(lines):
        size = int(str(entry.get("state_bytes", size)))
    return size


def _worker(scene: Scene) -> str:
    return str(scene.kubectl.items("pods", f"--selector={WORKER}")[0]["metadata"]["name"])


def _nothing(_: Scene) -> None:
    """Leave the worker's files."""


def _forget(scene: Scene) -> None:
    """Take the files of the state from the worker: as on another node, it finds them in Cassandra alone."""
    scene.kubectl.run("exec", _worker(scene), "--", "sh", "-c", f"find {CACHE} -ignore_readdir_race -type f -delete")


def _resident_bytes(scene: Scene) -> int:
    """Return the worker's memory without files; 0 where it does not say."""
    with suppress(KubectlError, IndexError):
        said = scene.kubectl.run("exec", _worker(scene), "--", "sh", "-c", "cat /sys/fs/cgroup/memory/memory.stat")
        for line in said.splitlines():
            if line.startswith("total_rss "):
                return int(line.split()[1])
    return 0


@contextmanager
def flowing(servers: str, keys: int) -> Iterator[None]:
    """Produce changes of these keys at RATE while the block runs."""
    stop = threading.Event()

    def changes() -> Iterator[Mapping[str, Any]]:
        chance = random.Random(27)
        while not stop.wait(0.1):
            yield from (_record(chance.randrange(keys)) for _ in range(round(RATE / 10)))

    sending = threading.Thread(target=produce, args=[servers, TOPIC, changes()], name="load of the large state")
    sending.start()
    try:
        yield
    finally:
        stop.set()
        sending.join()


def _record(key: int) -> Mapping[str, Any]:
    return {"key": f"k{key:09d}", "value": os.urandom(SIZE), "partition": key % PARTITIONS}
