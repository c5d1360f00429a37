"""What scrapes of the driver's metrics cost: the same backlog with a scrape about every second, and with none.

The two run in turns, in the reverse order in the next round, so that what else the machine does falls on both. What
is counted between scrapes is counted in both: `Figures` adds some numbers for each batch.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from typing import Any, Final

from bench import cpu
from bench.contest import Run, fencepost, run
from bench.options import Journal, Options
from bench.samples import Result, Sample
from bench.stage import clean, make_namespace, source, staged
from demo.scene import DRIVER, Scene
from fencepost.contract import METRICS_PORT
from flights.console import Console
from harness.kubernetes.kubectl import KubectlError

NAME: Final = "metrics"
ROWS: Final = 400_000
PER_BATCH: Final = 4_000
ROUNDS: Final = 2
EVERY: Final = 1.0
"""Seconds between two scrapes; the chart's PodMonitor asks for 15."""
WITH, WITHOUT = "scraped every second", "not scraped"


def measure(console: Console, options: Options) -> Result:
    """Work off the same backlog with and without scrapes, in rounds."""
    rows, rounds = options.rows or ROWS, options.rounds or ROUNDS
    names = options.chosen([WITH, WITHOUT])
    journal = Journal.of(NAME, options, {"rows": rows, "rows per batch": PER_BATCH})
    with staged() as scene:
        source(scene).burst(rows)
        for number in range(rounds):
            for name in names[:: 1 if number % 2 == 0 else -1]:
                if journal.has(name, number):
                    continue
                found = _one(scene, name, rows)
                console.line(f"metrics: round {number + 1}, {name}: {_total(found.spent):.1f} CPU-µs per row")
                journal.add(name, number, rows_per_second=found.rows_per_second, spent=dict(found.spent))
                clean(scene)
    return result(journal, rounds)


def result(journal: Journal, rounds: int) -> Result:
    """Return all that is known so far."""
    samples: list[Sample] = []
    known = {name: [line for line in journal.lines(name) if line["round"] < rounds] for name in (WITH, WITHOUT)}
    for name, lines in known.items():
        samples.append(Sample(name, "rows/s", [line["rows_per_second"] for line in lines]))
        roles = lines[0]["spent"] if lines else ()
        of_role = {role: [line["spent"].get(role, 0.0) for line in lines] for role in roles}
        samples += cpu.samples(name, of_role)
    return Result(NAME, samples, {**journal.conditions, "rounds": rounds}, list(_ratios(known)))


def _ratios(known: Mapping[str, list[dict[str, Any]]]) -> Iterator[str]:
    without = {line["round"]: line for line in known[WITHOUT]}
    pairs = [(line, without[line["round"]]) for line in known[WITH] if line["round"] in without]
    if pairs:
        driver = [ours["spent"]["driver"] / bare["spent"]["driver"] for ours, bare in pairs]
        everything = [_total(ours["spent"]) / _total(bare["spent"]) for ours, bare in pairs]
        for what, found in (("driver's CPU", driver), ("all CPU", everything)):
            yield f"{what} per row, {WITH} / {WITHOUT}: {', '.join(f'{ratio:.3f}' for ratio in found)}"


def _total(spent: Mapping[str, float]) -> float:
    return sum(spent.values())


def _one(scene: Scene, name: str, rows: int) -> Run:
    with _scraped(scene, is_on=name == WITH):
        return run(scene, fencepost(_start), rows)


def _start(scene: Scene, rows: int) -> None:  # noqa: ARG001 - the topic ends where it ends
    make_namespace(scene)
    kafka = {"maxRecordsPerBatch": PER_BATCH, "targetBatchDuration": "5m"}
    scene.apply({"cluster": {"workers": 1}, "source": {"kafka": kafka}})


@contextmanager
def _scraped(scene: Scene, *, is_on: bool) -> Iterator[None]:
    """Scrape the driver that there is while the block runs."""
    done = threading.Event()

    def scrape() -> None:
        while not done.wait(EVERY):
            with suppress(KubectlError):
                for pod in scene.kubectl.items("pods", f"--selector={DRIVER}", "--field-selector=status.phase=Running"):
                    _get(scene, pod["metadata"]["name"])

    thread = threading.Thread(target=scrape, name="scrapes")
    if is_on:
        thread.start()
    try:
        yield
    finally:
        done.set()
        if is_on:
            thread.join()


def _get(scene: Scene, pod: str) -> None:
    place = f"/api/v1/namespaces/{scene.kubectl.namespace}/pods/{pod}:{METRICS_PORT}/proxy/metrics"
    scene.kubectl.run("get", f"--raw={place}", seconds=10)
