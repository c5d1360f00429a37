"""What a table's memtable costs Cassandra: the skip list that is its default beside the trie of Cassandra 5.0.

The same pipeline writes the same rows to the same table, whose option `memtable` is another.  Cassandra's
configuration has to name both (`memtable.configurations` in cassandra.yaml).
"""

from __future__ import annotations

from typing import Final

from bench import cpu
from bench.contest import run
from bench.costs.peers import CONTESTANTS, PER_BATCH
from bench.options import Journal, Options
from bench.samples import Result, Sample
from bench.stage import clean, source, staged
from flights.console import Console

NAME: Final = "memtables"
ROWS: Final = 500_000
ROUNDS: Final = 2
CONTESTANT: Final = "Fencepost, record batches"
KINDS: Final = {"skip list": "skiplist", "trie": "trie"}
"""By the name of the sample, that of the configuration."""


def measure(console: Console, options: Options) -> Result:
    """Work off the same backlog into each kind, in rounds."""
    rows, rounds = options.rows or ROWS, options.rounds or ROUNDS
    journal = Journal.of(NAME, options, {"rows": rows, "rows per batch": PER_BATCH})
    notes: list[str] = []
    kinds = options.chosen(list(KINDS))
    left = [
        (number, kind)
        for number in range(rounds)
        for kind in kinds[:: 1 if number % 2 == 0 else -1]
        if not journal.has(kind, number)
    ]
    if left:
        with staged() as scene:
            source(scene).burst(rows)
            for number, kind in left:
                try:
                    scene.cassandra.execute(f"ALTER TABLE {scene.tables[0]} WITH memtable = '{KINDS[kind]}'")
                    found = run(scene, CONTESTANTS[CONTESTANT], rows)
                except Exception as error:  # noqa: BLE001 - the other one is measured nevertheless
                    notes.append(f"{kind}, round {number + 1}: not measured: {error}")
                    console.line(f"memtables: {notes[-1]}")
                else:
                    journal.add(kind, number, rows_per_second=found.rows_per_second, spent=dict(found.spent))
                    console.line(f"memtables: round {number + 1}, {kind}: {found.rows_per_second:,.0f} rows/s")
                    result(journal, notes).save(options.into)
                clean(scene)
    return result(journal, notes)


def result(journal: Journal, notes: list[str]) -> Result:
    """Return all that is known so far."""
    samples: list[Sample] = []
    for kind in KINDS:
        if lines := journal.lines(kind):
            spent = {role: [line["spent"].get(role, 0.0) for line in lines] for role in ("cassandra", "worker")}
            rates = [line["rows_per_second"] for line in lines]
            samples += [Sample(kind, "rows/s", rates), *cpu.samples(kind, spent)]
    return Result(NAME, samples, journal.conditions, notes)
