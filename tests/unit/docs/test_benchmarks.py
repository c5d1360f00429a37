"""The page of benchmarks says what the figures say, and nothing that was not measured."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

from bench.costs.peers import CONTESTANTS
from bench.costs.peers import result as peers
from bench.delays.recovery import STEPS
from bench.options import Journal, Options
from bench.samples import Result, Sample
from generators import plots
from generators.benchmarks import FOLDER, PAGE, TABLES, TEMPLATE, collect, render
from generators.figures import Figures, read, summary


def test_the_page_is_what_the_figures_give() -> None:
    assert PAGE.read_text() == render(TEMPLATE.read_text(), read(FOLDER)), "run `make benchmarks`"


def test_every_plot_was_drawn_from_the_figures_that_are_there() -> None:
    found = read(FOLDER)
    expected = {plot: figures.digest for name, figures in found.items() for plot in plots.PLOTS.get(name, {})}
    drawn = {path.stem: re.findall(r"from ([0-9a-f]{16})", path.read_text()) for path in FOLDER.glob("*.svg")}
    assert drawn == {plot: [digest] for plot, digest in expected.items()}, "run `make benchmarks`"


def test_the_template_has_a_place_for_every_plot() -> None:
    assert (
        {*plots.PLOTS} <= {*re.findall(r"^\{\{([a-z-]+)\}\}$", TEMPLATE.read_text(), re.MULTILINE)} <= {*TABLES, "aims"}
    )


def measured(tmp_path: Path, *results: Result) -> dict[str, Figures]:
    for result in results:
        result.save(tmp_path / "measured")
    collect(tmp_path / "measured", tmp_path / "docs")
    return read(tmp_path / "docs")


def raced(tmp_path: Path, **rates: float) -> Result:
    journal = Journal.of("peers", Options(into=tmp_path), {"rows": 10})
    for name, rate in zip(CONTESTANTS, rates.values(), strict=False):
        for number in range(2):
            spent = {"driver": 2.0, "worker": 9.0, "cassandra": 25.5, "kafka": 1.5}
            journal.add(name, number, rows_per_second=rate + number, spent=spent, wrong=[])
    return peers(journal, 2, ["Fencepost, 2 workers, round 1: not measured: its log\nended | early"])


def test_a_race_is_a_table_two_plots_and_rows_among_the_aims(tmp_path: Path) -> None:
    found = measured(tmp_path, raced(tmp_path, plain=1_000, tuned=2_000, ours=36_000))
    page = render("{{aims}}\n{{peers}}", found)
    assert "| backlog (Fencepost) | ≥ 35,000 rows/s | 36,000 | met |" in page
    assert "| CPU time of Cassandra (Fencepost) | ≤ 25 µs per row | 25.5 | **missed** |" in page
    assert "| CPU time of Spark (Fencepost) | ≤ 12 µs per row | 11.0 | met |" in page
    assert "| Fencepost | 36,000 | 36,000, 36,001 | 18.00 | 2.00 | 9.00 | 25.5 | 1.50 | 38.0 |" in page
    assert "- Fencepost, 2 workers, round 1: not measured: its log ended \\| early" in page
    assert "Fencepost / Structured" not in page
    assert "(benchmarks/peers-cpu.svg)" in page


def test_what_was_not_measured_says_how_to_measure_it(tmp_path: Path) -> None:
    page = render("{{aims}}\n{{growth}}", measured(tmp_path))
    assert "python -m bench growth" in page
    assert page.count("not measured") == 31
    assert "missed" not in page


def test_many_values_are_kept_as_quantiles(tmp_path: Path) -> None:
    values = [float(number) for number in range(1, 1_001)]
    found = measured(tmp_path, Result("latency", [Sample("record to commit", "ms", values)]))["latency"]
    sample = found.sample("record to commit")
    assert (sample.n, sample.at(0.5), sample.at(0.99), sample.at(1.0)) == (1_000, 500, 990, 1_000)
    assert len(json.loads((tmp_path / "docs/latency.json").read_text())["samples"][0]["quantiles"]) == 101


def test_a_bench_without_a_place_on_the_page_is_left_out(tmp_path: Path) -> None:
    assert measured(tmp_path, Result("images", []), Result("else", [])).keys() == {"images"}


def figures(name: str, samples: list[Sample]) -> Figures:
    result: dict[str, Any] = {
        "bench": name,
        "at": "2026-01-01T00:00:00+00:00",
        "commit": "0000000",
        "machine": {"cpus": 2, "load": [1.0, 1.0, 1.0]},
        "conditions": {},
        "samples": [sample.json() for sample in samples],
        "notes": [],
    }
    return Figures.of(json.dumps(summary(result)))


@pytest.mark.parametrize(
    ("name", "plot", "samples"),
    [
        ("latency", "latency", [Sample("record to commit", "ms", [1.0, 2.0])]),
        ("recovery", "recovery", [Sample(one, "s", [1.0]) for one in ("kill to commit", *(step[0] for step in STEPS))]),
    ],
)
def test_the_same_figures_are_drawn_alike(name: str, plot: str, samples: list[Sample]) -> None:
    found = figures(name, samples)
    first, second = (plots.svg(plots.PLOTS[name][plot], found) for _ in range(2))
    assert first == second
    assert b"<dc:date>" not in first
    assert found.digest.encode() in first
