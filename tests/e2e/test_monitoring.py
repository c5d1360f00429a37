"""What the pods of a pipeline report: metrics at the ports that the PodMonitor names, and executors' last words."""

from __future__ import annotations

import json
import uuid
from typing import Any

import pytest
from prometheus_client.parser import text_string_to_metric_families

from e2e.stream import Stream
from harness.kubernetes.kubectl import Kubectl, KubectlError, Object
from harness.kubernetes.nodes import Nodes
from harness.pipelines import PIPELINE_LABEL
from harness.waiting import eventually

pytestmark = [pytest.mark.e2e, pytest.mark.long, pytest.mark.timeout(600)]

END = """
import os, pathlib, signal, sys
for entry in pathlib.Path("/proc").iterdir():
    if entry.name.isdecimal():
        try:
            place, program = os.readlink(entry / "cwd"), os.readlink(entry / "exe")
        except OSError:
            continue
        if place.startswith("/tmp/work/") and program.endswith("java"):
            if words := sys.argv[2:]:
                with open(entry / "fd" / "2", "w") as stderr:
                    print(*words, file=stderr)
            os.kill(int(entry.name), signal.Signals[sys.argv[1]])
"""
"""Sends a signal to the executor, right after words that it writes for it to the executor's own stderr."""


def scrape(kubectl: Kubectl, pod: Object, port: str, path: str) -> dict[str, float]:
    """Return a pod's samples by name, those with labels summed; none while it serves none."""
    (number,) = [
        found["containerPort"]
        for container in pod["spec"]["containers"]
        for found in container["ports"]
        if found["name"] == port
    ]
    place = f"/api/v1/namespaces/{pod['metadata']['namespace']}/pods/{pod['metadata']['name']}:{number}/proxy{path}"
    try:
        text = kubectl.run("get", f"--raw={place}")
    except KubectlError:
        return {}
    found: dict[str, float] = {}
    for family in text_string_to_metric_families(text):
        for sample in family.samples:
            name = sample.name + "".join(f"{{{value}}}" for value in sample.labels.values())
            found[name] = found.get(name, 0.0) + sample.value
    return found


def pods(stream: Stream, component: str) -> list[Object]:
    selector = f"--selector={PIPELINE_LABEL}={stream.pipeline.name},streaming.fencepost.dev/component={component}"
    return stream.pipeline.kubectl.items("pods", selector, "--field-selector=status.phase=Running")


def test_pods_serve_metrics_and_an_executors_last_words_reach_the_log(
    stream: Stream, kubectl: Kubectl, nodes: Nodes
) -> None:
    """After SIGTERM an executor says so, after SIGKILL nothing: each one's last line is in the pod's log, as JSON."""
    with stream.load.flowing():
        stream.commits_past(stream.fence())
        (master,), (worker,), driver = pods(stream, "master"), pods(stream, "worker"), stream.pipeline.driver()
        of_driver = eventually(
            "the driver serves its figures",
            lambda: (
                found
                if (found := scrape(kubectl, driver, "metrics", "/metrics")).get("fencepost_driver_executors")
                else None
            ),
            seconds=60,
        )
        row = stream.commits_past(stream.fence())
    assert of_driver["fencepost_driver_epoch"] == row.epoch
    assert of_driver["fencepost_driver_fence_version"] <= row.version
    assert of_driver["fencepost_driver_records_total"] > 0
    assert of_driver["jvm_memory_used_bytes{heap}"] < of_driver["jvm_memory_max_bytes{heap}"]
    of_worker = scrape(kubectl, worker, "metrics", "/metrics")
    for kind in ("worker", "executor", "python"):
        assert of_worker[f"fencepost_worker_resident_memory_bytes{{{kind}}}"] > 10 << 20, kind
    for owner, figures in (("worker", of_worker), ("driver", of_driver)):
        used, limit = (figures[f"fencepost_{owner}_container_memory{part}_bytes"] for part in ("", "_limit"))
        assert 0 < figures[f"fencepost_{owner}_container_unreclaimable_bytes"] <= used < limit, owner
    assert scrape(kubectl, master, "ui", "/metrics/prometheus/")["metrics_master_aliveWorkers_Value{gauges}"] == 1
    assert scrape(kubectl, worker, "ui", "/metrics/prometheus/")["metrics_worker_executors_Value{gauges}"] == 1
    name = worker["metadata"]["name"]
    kubectl.run("exec", name, "--", "python", "-c", END, "SIGTERM")
    said = eventually("its last words are in the log", lambda: last_words(kubectl, name), seconds=60)
    assert said["level"] == "error"
    assert said["stream"] == "stderr"
    assert said["executor"].isdecimal()
    marker = f"the last line of {uuid.uuid4()}"
    eventually("there is another executor", lambda: executors(kubectl, worker) == 1, seconds=60)
    kubectl.run("exec", name, "--", "python", "-c", END, "SIGKILL", marker)
    entry = eventually("a log collector reads its last line", lambda: collected(nodes, worker, marker), seconds=60)
    assert int(entry["executor"]) > int(said["executor"])
    assert entry["stream"] == "stderr"
    stream.pipeline.wait_ready()
    stream.check_every_row()


def executors(kubectl: Kubectl, worker: Object) -> float | None:
    """Return how many executors the worker has."""
    return scrape(kubectl, worker, "ui", "/metrics/prometheus/").get("metrics_worker_executors_Value{gauges}")


def collected(nodes: Nodes, worker: Object, message: str) -> dict[str, Any] | None:
    """Return the entry with this message from the file that collectors follow; the runtime puts three words before it.

    They are the time, the stream, and F for a whole line.
    """
    metadata = worker["metadata"]
    file = f"/var/log/containers/{metadata['name']}_{metadata['namespace']}_worker-*.log"
    for line in nodes.run(worker["spec"]["nodeName"], "sh", "-c", f"cat {file}").splitlines():
        if message in line:
            _, stream, tag, text = line.split(" ", 3)
            assert (stream, tag) == ("stdout", "F"), line
            entry: dict[str, Any] = json.loads(text)
            assert entry["message"] == message, line
            return entry
    return None


def last_words(kubectl: Kubectl, pod: str) -> dict[str, Any] | None:
    """Return what an executor said of the signal that ended it; each line of the log is JSON."""
    lines = [json.loads(line) for line in kubectl.run("logs", pod).splitlines() if line.startswith("{")]
    return next((line for line in lines if "executor" in line and "SIGNAL TERM" in line["message"]), None)
