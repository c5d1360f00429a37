"""The figures of a bench as the page of benchmarks reads them, from docs/benchmarks/*.json."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any, Final

ROLES: Final = ("driver", "worker", "master", "cassandra", "kafka")
"""Processes, in the order in which tables and plots have them."""
FAMILIES: Final = {"partitions": (" partitions",), "sinks": (" sink", " sinks"), "size of a record": (" bytes",)}
"""What grows in `bench growth`, and how the names of its variants end."""
MOST_VALUES: Final = 40
DIGITS: Final = 5


def summary(result: Mapping[str, Any]) -> dict[str, Any]:
    """Return what a bench wrote, with each long list of values as its 101 quantiles."""
    samples = []
    for sample in result["samples"]:
        values = sorted(sample["values"])
        kept = (
            {"values": [_rounded(value) for value in sample["values"]]}
            if len(values) <= MOST_VALUES
            else {"quantiles": [_rounded(_rank(values, percent / 100)) for percent in range(101)]}
        )
        samples.append({"name": sample["name"], "unit": sample["unit"], "n": len(values), **kept})
    return {**{key: result[key] for key in ("bench", "at", "commit", "machine", "conditions")}, "samples": samples,
            "notes": result["notes"]}  # fmt: skip


def read(folder: Path) -> dict[str, Figures]:
    """Return all results of a folder by the name of their bench."""
    found = [Figures.of(path.read_text()) for path in sorted(folder.glob("*.json"))]
    return {figures.bench: figures for figures in found}


@dataclass(frozen=True, slots=True)
class Distribution:
    """One sample: all its values, or its 101 quantiles."""

    name: str
    unit: str
    n: int
    values: Sequence[float]

    def at(self, share: float) -> float:
        """Return a percentile by nearest rank, share from 0 to 1."""
        return _rank(sorted(self.values), share)

    @property
    def median(self) -> float:
        """The median: of two values their mean."""
        return median(self.values)


@dataclass(frozen=True, slots=True)
class Figures:
    """One bench's figures. `digest` is of the JSON that they were read from."""

    bench: str
    digest: str
    at: str
    commit: str
    machine: Mapping[str, Any]
    conditions: Mapping[str, Any]
    samples: Sequence[Distribution]
    notes: Sequence[str]

    @classmethod
    def of(cls, text: str) -> Figures:
        """Read the JSON that `summary` made."""
        found = json.loads(text)
        return cls(
            bench=found["bench"],
            digest=hashlib.sha256(text.encode()).hexdigest()[:16],
            at=found["at"],
            commit=found["commit"],
            machine=found["machine"],
            conditions=found["conditions"],
            samples=[
                Distribution(one["name"], one["unit"], one["n"], one.get("values") or one.get("quantiles") or [])
                for one in found["samples"]
            ],
            notes=found["notes"],
        )

    def sample(self, name: str) -> Distribution:
        """Return a sample by its name. Raises KeyError."""
        for one in self.samples:
            if one.name.strip() == name:
                return one
        raise KeyError(f"{self.bench} has no sample {name!r}")

    def contestants(self) -> list[str]:
        """Return the names of what was measured in rows per second."""
        return [one.name for one in self.samples if one.unit == "rows/s"]

    def fastest(self, prefix: str) -> str | None:
        """Return the contestant of the most rows per second whose name begins so, and that commits."""
        names = [name for name in self.contestants() if name.startswith(prefix) and "without" not in name]
        return max(names, key=lambda name: self.sample(name).median, default=None)

    def spent(self, contestant: str) -> dict[str, float]:
        """Return a contestant's CPU-µs per row by role."""
        head = f"{contestant}: "
        found = {one.name.removeprefix(head): one.median for one in self.samples if one.name.startswith(head)}
        return {role: found[role] for role in ROLES if role in found}

    def roles(self) -> list[str]:
        """Return the roles that occur."""
        there = {role for name in self.contestants() for role in self.spent(name)}
        return [role for role in ROLES if role in there]

    def families(self) -> dict[str, list[str]]:
        """Return the variants of `bench growth` by what grows, in their order."""
        names = [one.name for one in self.samples if one.unit == "ms per batch"]
        return {title: [name for name in names if name.endswith(end)] for title, end in FAMILIES.items()}

    def provenance(self) -> str:
        """Return when, where and of what the figures are."""
        conditions = ", ".join(f"{name}: {_plain(value)}" for name, value in self.conditions.items())
        load = self.machine["load"][0]
        return (
            f"Measured {self.at[:10]} at commit `{self.commit}` on {self.machine['cpus']} CPUs, load {load:.1f} at the"
            f" end{'; ' + conditions if conditions else ''}."
        )


def _rank(ordered: Sequence[float], share: float) -> float:
    return ordered[max(0, min(len(ordered) - 1, -(-round(share * 1000) * len(ordered) // 1000) - 1))]


def _rounded(value: float) -> float:
    return float(f"{value:.{DIGITS}g}")


def _plain(value: object) -> str:
    return (
        f"{value:,g}"
        if isinstance(value, int | float) and value < 1e6
        else (f"{value:,}" if isinstance(value, int) else str(value))
    )
