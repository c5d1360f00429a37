"""Samples, their percentiles, and how they are printed."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from flights.console import Console


@dataclass(frozen=True, slots=True)
class Sample:
    """What was measured, in one unit."""

    name: str
    unit: str
    values: Sequence[float]

    def percentile(self, share: float) -> float:
        """The nearest-rank percentile, share from 0 to 1: always a value that was measured."""
        ordered = sorted(self.values)
        return ordered[max(0, min(len(ordered) - 1, -(-int(share * 1000) * len(ordered) // 1000) - 1))]

    def cells(self) -> tuple[str, ...]:
        """A row of the table."""
        if not self.values:
            return (self.name, "0", *("",) * 4, self.unit)
        figures = (self.percentile(0.5), self.percentile(0.95), self.percentile(0.99), max(self.values))
        return (self.name, str(len(self.values)), *(_plain(figure) for figure in figures), self.unit)

    def json(self) -> dict[str, Any]:
        """For the file: the values too, so that another summary can be made of them."""
        return {
            "name": self.name,
            "unit": self.unit,
            "n": len(self.values),
            "values": list(self.values),
            **(
                {"p50": self.percentile(0.5), "p95": self.percentile(0.95), "p99": self.percentile(0.99)}
                if self.values
                else {}
            ),
        }


@dataclass(frozen=True, slots=True)
class Result:
    """One program's figures. `conditions` are what they depend on."""

    bench: str
    samples: Sequence[Sample]
    conditions: Mapping[str, str | int | float] = field(default_factory=dict)
    notes: Sequence[str] = ()

    def show(self, console: Console) -> None:
        """Print the table."""
        console.plain()
        console.plain(
            f"{self.bench}: {', '.join(f'{name} {value}' for name, value in self.conditions.items())}".rstrip(": ")
        )
        console.table(("", "n", "p50", "p95", "p99", "max", "unit"), (sample.cells() for sample in self.samples))
        for note in self.notes:
            console.plain(note)
        console.plain()

    def save(self, folder: Path) -> Path:
        """Write `<bench>.json` into a folder; return its path."""
        folder.mkdir(parents=True, exist_ok=True)
        path = folder / f"{self.bench}.json"
        record = {
            "bench": self.bench,
            "at": datetime.now(UTC).isoformat(timespec="seconds"),
            "commit": commit_id(),
            "machine": {"cpus": os.cpu_count(), "load": os.getloadavg()},
            "conditions": dict(self.conditions),
            "samples": [sample.json() for sample in self.samples],
            "notes": list(self.notes),
        }
        path.write_text(json.dumps(record, indent=1) + "\n")
        return path


def _plain(figure: float) -> str:
    if figure >= 1000:
        return f"{figure:,.0f}"
    return f"{figure:.1f}" if figure >= 10 else f"{figure:.2f}"


def commit_id() -> str:
    """Return the commit that is checked out."""
    found = subprocess.run(
        ["git", "rev-parse", "--short", "HEAD"],
        capture_output=True,
        text=True,
        check=False,
        cwd=Path(__file__).parent,
    )
    return found.stdout.strip()
