"""Write docs/benchmarks.md and its plots from the figures in docs/benchmarks/*.json; `make benchmarks` runs it.

The page's prose is in benchmarks.template.md.  Every figure on the page comes from the JSON: a line of the template
that is a name in double braces is replaced by the tables and plots of that bench, or by how to measure it.
"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final, TypeAlias

from generators import plots, stateful
from generators.figures import Figures, read, summary

ROOT: Final = Path(__file__).resolve().parents[2]
TEMPLATE: Final = Path(__file__).with_name("benchmarks.template.md")
PAGE: Final = ROOT / "docs/benchmarks.md"
FOLDER: Final = ROOT / "docs/benchmarks"
MEASURED: Final = ROOT / ".cache/bench"

Results: TypeAlias = Mapping[str, Figures]
_PLACE: Final = re.compile(r"^\{\{([a-z-]+)\}\}$", re.MULTILINE)

RATIO: Final = re.compile(r"Fencepost.* / .*: [\d., ]+$")
"""A note of `bench peers` that the table says in a column of its own."""
PEER: Final = "Structured Streaming, tuned"
SPARK: Final = ("driver", "worker", "master")


def render(template: str, results: Results) -> str:
    """Return the page. Raises KeyError for a name in the template that is not a bench."""
    return _PLACE.sub(lambda found: "\n".join(section(found[1], results)), template)


def section(name: str, results: Results) -> Iterator[str]:
    """Yield the lines of one bench."""
    if name == "aims":
        yield from aims(results)
        return
    tables = TABLES[name]
    if name not in results:
        yield f"There are no figures yet: `python -m bench {name}`, then `make benchmarks`."
        return
    found = results[name]
    yield from tables(found)
    for plot in plots.PLOTS.get(name, {}):
        yield f"\n![{plots.PLOTS[name][plot].caption}](benchmarks/{plot}.svg)"
    yield f"\n{found.provenance()}"
    if notes := [note for note in found.notes if not RATIO.match(note)]:
        yield ""
        yield from (f"- {one_line(note)}" for note in notes)


def table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> Iterator[str]:
    """Yield a table whose first column is text and whose others are figures."""
    yield f"| {' | '.join(head)} |"
    yield f"|---|{'---:|' * (len(head) - 1)}"
    yield from (f"| {' | '.join(row)} |" for row in rows)


def contestants(found: Figures) -> Iterator[str]:
    """Yield rows per second, each round's, and CPU time per row by process."""
    roles = found.roles()
    against = ["times tuned peer"] if PEER in found.contestants() else []
    rows = []
    for name in found.contestants():
        spent = found.spent(name)
        rates = found.sample(name).values
        rows.append(
            [
                name,
                number(found.sample(name).median),
                ", ".join(number(rate) for rate in rates),
                *(f"{found.sample(name).median / found.sample(PEER).median:.2f}" for _ in against),
                *(number(spent.get(role, 0.0)) for role in roles),
                number(sum(spent.values())),
            ]
        )
    head = ["", "rows/s, median", "rows/s, rounds", *against]
    yield from table([*head, *(f"{role}, µs/row" for role in roles), "all, µs/row"], rows)


def distributions(found: Figures) -> Iterator[str]:
    """Yield the percentiles of each sample."""
    rows = [
        [one.name.strip(), f"{one.n:,}", *(number(one.at(share)) for share in (0.5, 0.95, 0.99, 1.0)), one.unit]
        for one in found.samples
        if one.n
    ]
    yield from table(["", "n", "p50", "p95", "p99", "max", "unit"], rows)


def growth(found: Figures) -> Iterator[str]:
    """Yield a table for each thing that grows."""
    for title, names in found.families().items():
        if not names:
            continue
        rows = [
            [
                name,
                number(found.sample(f"{name}: records per batch").median),
                number(found.sample(name).at(0.5)),
                number(found.sample(name).at(0.99)),
                number(found.sample(f"{name}: rate").median),
                number(found.sample(f"{name}: bytes").median),
            ]
            for name in names
        ]
        yield f"\nBy {title}:\n"
        yield from table(["", "records per batch", "ms per batch, p50", "p99", "records/s", "MB/s"], rows)


def stateful_section(found: Figures) -> Iterator[str]:
    """Yield the tables of stateful pipelines."""
    for title, rows in (
        ("Batches, and CPU time of driver, worker and master", stateful.batches(found)),
        ("Where the time of a batch goes, by Spark's phases, medians in ms", stateful.phases(found)),
        ("What a batch of Fencepost costs, on average", stateful.costs(found)),
    ):
        head, *others = rows
        if others:
            yield f"\n{title}:\n"
            yield from table(head, others)


TABLES: Final[Mapping[str, Callable[[Figures], Iterator[str]]]] = {
    "peers": contestants,
    "backlog": contestants,
    "memtables": contestants,
    "metrics": contestants,
    "long-backlog": distributions,
    "growth": growth,
    "latency": distributions,
    "batch": distributions,
    "commit": distributions,
    "recovery": distributions,
    "zombie": distributions,
    "upgrades": distributions,
    "apply": distributions,
    "lost-node": distributions,
    "pages": distributions,
    "operator-memory": distributions,
    "fleet": distributions,
    "footprint": distributions,
    "images": distributions,
    "console": distributions,
    "stateful": stateful_section,
    "large-state": distributions,
}


_QUANTILES: Final[Sequence[tuple[str, str, str, float, float, str]]] = (
    ("batch of 1,000 rows", "batch", "commit to commit", 0.5, 60, "ms"),
    ("record to commit at 1,000 records/s", "latency", "record to commit", 0.5, 60, "ms"),
    ("record to commit at 1,000 records/s", "latency", "record to commit", 0.99, 120, "ms"),
    ("SIGKILL of the driver to the next commit", "recovery", "kill to commit", 0.95, 7, "s"),
    ("the same with a warm standby", "recovery", "kill to commit with standby", 0.95, 2, "s"),
    ("the same without workers", "recovery", "kill to commit without workers", 0.95, 5, "s"),
    ("pause at a change of the spec with `Handoff`", "upgrades", "commit to commit, Handoff", 0.95, 0.5, "s"),
    ("apply to the first commit", "apply", "apply to first commit", 0.5, 15, "s"),
    ("frozen driver to the next commit at `stallTimeout: 15s`", "zombie", "freeze to commit", 0.5, 35, "s"),
    ("node falls silent to the next commit", "lost-node", "silence to commit", 0.95, 25, "s"),
    ("fault to page", "pages", "fault to page", 0.99, 30, "s"),
    ("memory without workers", "footprint", "no workers, at work: all processes", 0.5, 700, "MiB"),
    ("memory with one worker", "footprint", "one worker, at work: all processes", 0.5, 1_229, "MiB"),
    ("CPU at rest without workers", "footprint", "no workers, at rest: CPU", 0.5, 10, "millicores"),
    ("killed driver of a fleet to its next Job", "fleet", "killed driver to Job created", 0.99, 2, "s"),
)
"""What is aimed at, the bench, its sample, the quantile that counts, and the most that it may be in a unit."""


def aims(results: Results) -> Iterator[str]:
    """Yield each aim beside what was measured."""
    rows = []
    for what, bound, unit, least, measured in _aims(results):
        if measured is None:
            outcome, shown = "not measured", ""
        else:
            outcome = "met" if (measured >= bound if least else measured <= bound) else "**missed**"
            shown = number(measured)
        rows.append([what, f"{'≥' if least else '≤'} {bound:,g} {unit}".strip(), shown, outcome])
    yield from table(["", "aim", "measured", ""], rows)


def _aims(results: Results) -> Iterator[tuple[str, float, str, bool, float | None]]:
    peers = results.get("peers")
    best = peers.fastest("Fencepost") if peers else None
    name = f" ({best})" if best else ""
    spent = peers.spent(best) if peers and best else {}
    yield f"backlog{name}", 35_000, "rows/s", True, peers.sample(best).median if peers and best else None
    for what, roles, bound in (("Spark", SPARK, 12), ("Cassandra", ("cassandra",), 25), ("Kafka", ("kafka",), 2)):
        measured = sum(spent.get(role, 0.0) for role in roles) if spent else None
        yield f"CPU time of {what}{name}", bound, "µs per row", False, measured
    for what, bench, sample, share, most, unit in _QUANTILES:
        found = results.get(bench)
        yield f"{what}, p{share * 100:.0f}", most, unit, False, found.sample(sample).at(share) if found else None
    commit = results.get("commit")
    ratio = commit.sample("fence commit").at(0.5) / commit.sample("bare conditional update").at(0.5) if commit else None
    yield "fence commit, p50, against a bare lightweight transaction", 1.1, "times", False, ratio
    yield from stateful.aims(results.get("stateful"), results.get("large-state"))


def number(value: float) -> str:
    """Return a figure with about three digits."""
    if value >= 1000:
        return f"{value:,.0f}"
    return f"{value:.0f}" if value >= 100 else (f"{value:.1f}" if value >= 10 else f"{value:.2f}")


def one_line(text: str) -> str:
    """Return a note as one line of Markdown."""
    return " ".join(text.split()).replace("|", "\\|")[:300]


def collect(measured: Path, folder: Path) -> None:
    """Copy what was measured into the folder of the docs, each long list of values as its quantiles."""
    folder.mkdir(parents=True, exist_ok=True)
    for path in sorted(measured.glob("*.json")):
        found: dict[str, Any] = json.loads(path.read_text())
        if found["bench"] in TABLES:
            (folder / path.name).write_text(json.dumps(summary(found), indent=1, ensure_ascii=False) + "\n")


def main() -> int:
    """Collect, draw, write."""
    collect(MEASURED, FOLDER)
    results = read(FOLDER)
    for name, found in results.items():
        for plot, drawing in plots.PLOTS.get(name, {}).items():
            (FOLDER / f"{plot}.svg").write_bytes(plots.svg(drawing, found))
    PAGE.write_text(render(TEMPLATE.read_text(), results))
    return 0


if __name__ == "__main__":
    sys.exit(main())
