"""`python -m bench stateful`: Fencepost, native Structured Streaming and PyFlink, in turns over one topic.

Parts with ten million keys are measured where `--only` names them: to fill the state takes minutes. `--before-job` is
an image that all parts run in place of the testbed's.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict
from itertools import groupby
from pathlib import Path
from statistics import median
from typing import Any, Final

from bench.options import Journal, Options
from bench.producing import produce
from bench.samples import Result, Sample
from bench.stage import clean
from bench.stateful import contest, flink, load
from bench.stateful.contestants import (
    BLOCKS,
    FENCED,
    FLINK,
    FLOOR,
    KEYS,
    KEYS_OF,
    NATIVE,
    SLOW,
    records,
)
from demo.scene import Scene
from flights.console import Console
from testbed.environment import load as environment

NAME: Final = "stateful"
FOLDER: Final = Path(__file__).parent / "pipeline"
ROUNDS: Final = 2
BATCHES: Final = {
    **{f"{contestant}: {query}": (contestant, query) for query in BLOCKS for contestant in (FENCED, NATIVE, FLINK)},
    **{f"{contestant}: count": (contestant, "count") for contestant in (SLOW, FLOOR)},
}
"""Contestants and queries by part."""
PARTS: Final = tuple(BATCHES)
"""In the order of measuring."""
ONCE: Final = {part for part, (contestant, query) in BATCHES.items() if contestant in {SLOW, FLOOR} or query in KEYS_OF}
"""Parts that are measured in the first round alone."""


def measure(console: Console, options: Options) -> Result:
    """Measure all parts, in rounds; each figure is kept as soon as it is there."""
    rounds = options.rounds or ROUNDS
    parts = [part for part in options.chosen(list(PARTS)) if options.only or keys_of(part) == KEYS]
    journal = Journal.of(NAME, options, {"keys": KEYS, "state partitions": 2, "cores": 1})
    left = [
        (number, part)
        for number in range(rounds)
        for part in parts[:: 1 if number % 2 == 0 else -1]
        if not journal.has(part, number) and (part not in ONCE or number == 0)
    ]
    notes: list[str] = []
    for keys, group in groupby(sorted(left, key=lambda one: keys_of(one[1])), key=lambda one: keys_of(one[1])):
        due = list(group)
        with staged(console, [part for _, part in due], keys) as scene:
            for number, part in due:
                try:
                    journal.add(part, number, **_part(scene, console, options, part))
                except Exception as error:  # noqa: BLE001 - the others are measured nevertheless
                    notes.append(f"{part}, round {number + 1}: not measured: {error}")
                    console.line(f"stateful: {notes[-1]}")
                else:
                    console.line(f"stateful: round {number + 1}: {part}")
                    result(journal, rounds, notes).save(options.into)
                clean(scene)
    return result(journal, rounds, notes)


def keys_of(part: str) -> int:
    """Return the keys of the records that a part needs."""
    return KEYS_OF.get(BATCHES[part][1], KEYS)


def _part(scene: Scene, console: Console, options: Options, part: str) -> dict[str, Any]:
    """Return the figures of a part, for the journal."""
    contestant, query = BATCHES[part]
    if contestant == FLINK:
        found = flink.run(scene, query)
    else:
        found = contest.run(scene, contestant, query, image=options.before_job)
    for block in found:
        console.line(f"stateful: {part}: batches of {block.block}: {median(block.took):.0f} ms")
    return {"blocks": [asdict(block) for block in found]}


def result(journal: Journal, rounds: int, notes: list[str]) -> Result:
    """Return all that is known so far."""
    samples: list[Sample] = []
    for part in PARTS:
        lines = [line for line in journal.lines(part) if line["round"] < rounds]
        for index, block in enumerate(lines[0]["blocks"] if lines else ()):
            samples += _samples(f"{part}, {block['block']}", [line["blocks"][index] for line in lines])
    return Result(NAME, samples, {**journal.conditions, "rounds": rounds}, notes)


def _samples(name: str, blocks: list[dict[str, Any]]) -> Iterator[Sample]:
    yield Sample(name, "ms", [took for block in blocks for took in block["took"]])
    for phase in blocks[0]["phases"]:
        yield Sample(f"{name}: {phase}", "ms", [float(ms) for block in blocks for ms in block["phases"].get(phase, ())])
    for what in blocks[0]["done"]:
        yield Sample(f"{name}: {what}", "per batch", [block["done"].get(what, 0.0) for block in blocks])
    for role in blocks[0]["spent"]:
        yield Sample(f"{name}: {role}", "CPU-µs per row", [block["spent"].get(role, 0.0) for block in blocks])


@contextmanager
def staged(console: Console, parts: Sequence[str], keys: int) -> Iterator[Scene]:
    """Yield the stage with the records of these parts, cleared again when the block ends well."""
    with Scene.of(environment(), str(FOLDER)) as scene:
        scene.clear()
        scene.prepare(load.PARTITIONS)
        total = max(records(BLOCKS[BATCHES[part][1]]) for part in parts)
        console.line(f"stateful: producing {total:,} records")
        sent = load.records(min(total, keys), max(total - keys, 0))
        produce(scene.environment.kafka_host, load.TOPIC, sent)
        yield scene
        scene.clear()
