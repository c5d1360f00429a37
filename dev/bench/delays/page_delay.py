"""Seconds from a fault to the page that reports it, and where they go.

Faults are real: they are made by `kubectl` and in Kafka, and found by a driver or by the operator of the testbed.  The
receivers are a web hook and Alertmanager, whose webhook is the second one; all have this machine's clock.
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from datetime import datetime
from pathlib import Path
from typing import Final

from bench.delays.page_faults import Fault, Stand, faults
from bench.delays.recovery import Recovery, known, log_lines
from bench.options import Options
from bench.samples import Result, Sample
from bench.stage import make_namespace, source, staged, wait_for_commit
from demo.scene import EPOCH, PARTITIONS, Scene
from flights.console import Console
from flights.topics import Topics
from harness.kubernetes.kubectl import KubectlError
from harness.monitoring.alertmanager import alertmanager
from harness.monitoring.page_receivers import Hooks, hooks
from harness.pipelines import KIND, merged
from harness.waiting import NotInTimeError, eventually
from testbed.cluster import WORKERS

ROUNDS: Final = 7
HOOK: Final = "/page"
ALERTS: Final = "/alerts"
PAGE_SECONDS: Final = 120.0
RECORDS: Final = 1_000
STEPS: Final = (
    ("find", "fault", "found", "the next run starts where the spec changed, and a driver ends with a verdict"),
    ("decide", "found", "decided", "the operator sees it; condition and incident are one write"),
    ("find and decide, by the operator", "noticed", "decided", "the same where the operator itself finds the fault"),
    ("deliver", "decided", "hook", "the write of the status, the process that sends, the request"),
    ("deliver by Alertmanager", "decided", "alert", "the same, and what Alertmanager's own webhook takes"),
)


def measure(console: Console, options: Options) -> Result:
    """Break one pipeline after the other, in several ways each."""
    found: dict[str, list[Recovery]] = {}
    notes: list[str] = []
    rounds = options.rounds or ROUNDS
    with staged() as scene, receiving(scene) as hub:
        for number in range(rounds):
            try:
                for fault, moments in _broken(scene, hub, number):
                    found.setdefault(fault.name, []).append(moments)
                    console.line(f"pages: {fault.name}: {moments.between('fault', 'hook') or 0:.1f} s")
            except (NotInTimeError, KubectlError) as error:
                notes.append(f"round {number + 1} ended early: {error}")
                console.line(f"pages: {notes[-1]}")
    everything = [moments for each in found.values() for moments in each]
    samples = [
        Sample("fault to page", "s", known(everything, "fault", "hook")),
        *(Sample(f"  {name}", "s", known(everything, first, last)) for name, first, last, _ in STEPS),
        *(Sample(f"fault to page, {name}", "s", known(each, "fault", "hook")) for name, each in found.items()),
    ]
    return Result("pages", samples, {"rounds": rounds}, [*notes, *(f"{name}: {what}" for name, _, _, what in STEPS)])


@contextmanager
def receiving(scene: Scene) -> Iterator[Hooks]:
    """Run the receivers, and name them in the Secret of the scene's namespace."""
    host = scene.nodes.host(WORKERS[0])
    with (
        tempfile.TemporaryDirectory() as folder,
        hooks(host) as hub,
        alertmanager(
            scene.environment, Path(folder), webhook=f"http://{host}:{hub.port}{ALERTS}", host=host
        ) as manager,
    ):
        make_namespace(scene)
        receivers = {
            "apprise": f"json://{host}:{hub.port}{HOOK}",
            "alertmanager": f"http://{manager.address}",
        }
        secret = {"kind": "Secret", "metadata": {"name": "fencepost-pages"}, "stringData": receivers}
        scene.kubectl.apply({"apiVersion": "v1", **secret})
        scene.apply({"suspend": True})  # for its Secret and ConfigMap
        yield hub
        scene.remove_pipeline()  # while they can still receive its end


def _broken(scene: Scene, hub: Hooks, number: int) -> Iterator[tuple[Fault, Recovery]]:
    """Run a pipeline of its own, and yield the moments of each fault."""
    name = f"{scene.name}-{number + 1}"
    metadata = {"name": name, "namespace": scene.kubectl.namespace}
    own = replace(scene, manifest={**scene.manifest, "metadata": metadata})
    stand = Stand(own, source(own), hub)
    Topics(own.environment.kafka_host).delete(own.topics[0])
    Topics(own.environment.kafka_host).create(own.topics[0], PARTITIONS)
    stand.feed.burst(RECORDS)
    own.apply_pipeline({**own.manifest, "spec": merged(own.manifest["spec"], {})})
    try:
        wait_for_commit(own)
        for fault in faults(number):
            fault.prepare(stand)
            yield fault, _moments(stand, fault)
    finally:
        own.kubectl.delete(KIND, name, seconds=120)
        own.forget_fence()


def _moments(stand: Stand, fault: Fault) -> Recovery:
    begun = time.time()
    fault.make(stand)
    key = f"/{stand.scene.kubectl.namespace}/{stand.scene.name}/{fault.reason}/"

    def hook() -> float | None:
        mails = stand.hub.arrivals(HOOK)
        return next((at for at, page in mails if at > begun and key in page["message"]), None)

    def alert() -> float | None:
        posts = ((at, each) for at, post in stand.hub.arrivals(ALERTS) for each in post["alerts"])
        return next((at for at, each in posts if at > begun and key in each["labels"]["incident"]), None)

    at = eventually(f"{fault.reason} is paged", hook, seconds=PAGE_SECONDS, pause=0.1)
    moments = {"fault": begun, "hook": at, "decided": _decided(stand, fault.reason)}
    moments["alert"] = eventually(f"Alertmanager reports {fault.reason}", alert, seconds=PAGE_SECONDS, pause=0.1)
    moments |= {"found": _verdict(stand)} if fault.by_driver else {"noticed": begun}
    return Recovery(moments)


def _decided(stand: Stand, reason: str) -> float:
    """When the operator decided to page, by its own clock."""
    (page,) = [page for page in stand.status()["pages"] if page["reason"] == reason]
    return datetime.fromisoformat(page["openedAt"]).timestamp()


def _verdict(stand: Stand) -> float:
    """When the newest driver said its last word."""
    newest = max(stand.scene.drivers(), key=lambda pod: int(pod["metadata"]["labels"][EPOCH]))
    lines = list(log_lines(stand.scene.kubectl.run("logs", newest["metadata"]["name"], "--tail=20")))
    return datetime.fromisoformat(str(lines[-1]["time"])).timestamp()
