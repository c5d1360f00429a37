"""`python -m bench large-state`: recoveries with gigabytes of state, and its chunks.

From SIGKILL of the driver to the next commit, with the worker's files and without. More than a gigabyte is measured
where `--only` names it. `--before-job` is an image that all parts run in place of the testbed's.
"""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import asdict
from pathlib import Path
from typing import Any, Final

from bench.contest import RUN_SECONDS
from bench.delays.recovery import STEPS, log_lines, recoveries
from bench.options import Journal, Options
from bench.producing import produce
from bench.samples import Result, Sample
from bench.stage import clean, wait_for_commit
from bench.stateful import chunks
from demo.scene import Killed, Scene
from flights.console import Console
from flights.topics import Topics
from harness.kubernetes.kubectl import KubectlError
from testbed.environment import load as environment

NAME: Final = "large-state"
FOLDER: Final = Path(__file__).parent / "pipeline"
SIZES: Final = {f"{gigabytes} GB": gigabytes for gigabytes in (1, 5, 10)}
PARTS: Final = (*SIZES, "chunks")
"""In the order of measuring; the first pipeline makes the keyspace of the chunks."""
USUAL: Final = {"1 GB", "chunks"}
TOPIC: Final = "bench-stateful-large"
PARTITIONS: Final = 4
KEYS: Final = 1_000_000
"""Of a gigabyte: the query makes a kilobyte of state of each."""
CORES: Final = 2
"""Of the worker: a core per partition of the state, which are loaded at the same time then."""
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


def measure(console: Console, options: Options) -> Result:
    """Measure all parts; each figure is kept as soon as it is there."""
    journal = Journal.of(NAME, options, {"state partitions": 2, "cores": CORES})
    parts = [part for part in options.chosen(list(PARTS)) if options.only or part in USUAL]
    notes: list[str] = []
    with Scene.of(environment(), str(FOLDER)) as scene:
        scene.clear()
        scene.prepare(PARTITIONS)
        for part in parts:
            if journal.has(part, 0):
                continue
            try:
                samples = _samples(part, scene, console, options)
            except Exception as error:  # noqa: BLE001 - the others are measured nevertheless
                notes.append(f"{part}: not measured: {error}")
                console.line(f"large-state: {notes[-1]}")
            else:
                journal.add(part, 0, samples=[asdict(sample) for sample in samples])
                result(journal, notes).save(options.into)
            clean(scene)
        scene.clear()
    return result(journal, notes)


def result(journal: Journal, notes: list[str]) -> Result:
    """Return all that is known so far."""
    lines = [line for part in PARTS for line in journal.lines(part)]
    samples = [Sample(**sample) for line in lines for sample in line["samples"]]
    return Result(NAME, samples, journal.conditions, notes)


def _samples(part: str, scene: Scene, console: Console, options: Options) -> list[Sample]:
    if part in SIZES:
        return _filled(scene, console, SIZES[part], image=options.before_job)
    return chunks.measure(scene)


def _filled(scene: Scene, console: Console, gigabytes: int, *, image: str | None) -> list[Sample]:
    """Fill the state, then kill drivers under load: with its files on the worker, and after they were taken away.

    More than a gigabyte has a third of the kills.  Disks need about five times the state: the chunks with what
    compactions replaced, and the copies of the worker beside RocksDB's own files.
    """
    Topics(scene.environment.kafka_host).create(TOPIC, PARTITIONS)
    keys = gigabytes * KEYS
    try:
        console.line(f"large-state: producing {keys:,} records")
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
    scene.apply(
        {
            "job": job,
            "state": {"maxBytes": f"{3 * gigabytes}Gi"},
            "cluster": {"worker": {"cores": CORES}},
            "source": {"kafka": {"topics": [TOPIC]}},
        }
    )
    wait_for_commit(scene, past=keys - 1, seconds=gigabytes * RUN_SECONDS)
    with flowing(scene.environment.kafka_host, keys):
        _settle(scene, console)
        found, memory = {}, []
        for where, before, kills in ((LOCAL, _nothing, 10), (REMOTE, _forget, 5)):
            times = kills if gigabytes == 1 else kills // 3

            def stop(before: Callable[[Scene], None] = before) -> Killed:
                time.sleep(STEADY_SECONDS)
                memory.append(_resident_bytes(scene) / 2**20)
                before(scene)
                return scene.signal_driver("KILL")

            found[f", {where}"], _ = recoveries(f"large-state: {where}", scene, console, stop, times=times)
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
    console.line(f"large-state: the state has {_state_bytes(scene) / 2**20:,.0f} MiB")


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
    return {"key": f"k{key:09d}", "partition": key % PARTITIONS}
